"""Lion on real ranks: what groups decide together is what one process decides for all of them, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.parallel.lion.rank_lion import KINDS, TRAINED, spatials
from tests.support.ranks import RANK, run_ranks


@pytest.mark.parametrize("ranks", [2, 3, 4, pytest.param(8, marks=pytest.mark.long)])
def test_groups_decide_as_one_process(ranks: int, tmp_path: Path) -> None:
    """Any combination and width, blocks or none; resumed, skipped, spoilt and refused alike on all ranks."""
    ended = run_ranks(Path(__file__).parent / "rank_lion.py", RANK, str(ranks), tmp_path, ranks=ranks)
    assert [each.status for each in ended] == [0] * ranks, "\n".join(each.errors[-2000:] for each in ended)
    reports = [json.loads((tmp_path / f"report-{rank}.json").read_text()) for rank in range(ranks)]
    for spatial in spatials(ranks):
        for report in reports:
            _check(report[str(spatial)], reports[0][str(spatial)], spatial)
    for name in TRAINED if ranks == 4 else ():
        assert max(report[name] for report in reports) < 1e-12, name


def _check(found: dict[str, Any], first: dict[str, Any], spatial: tuple[int, int, int]) -> None:
    groups = found["groups"]
    for kind in KINDS:
        for dtype in ("torch.float32", "torch.float64"):
            case = found[f"{kind} {dtype}"]
            assert case == {"wrong": [], "drift": 0.0}, (spatial, kind, dtype)
    # Means over several ranks are taken in another order than here.
    assert found["momentum"]["wrong"] == []
    assert found["momentum"]["drift"] < 1e-6
    assert found["resumed"] == {"same": True, "mean": True, "empty": True}
    # Of each number p bits go there, and one or two come back, of the 32 either way of a ring.
    for bits, share in found.get("traffic", {}).items():
        back = 1 if bits == "1" and groups % 2 else 2
        assert share <= (int(bits) + back) / 64 * 1.01, (spatial, bits)
    before, skipped, behind = found["scaled"]["seen"]
    assert before == skipped != behind
    assert found["scaled"] == first["scaled"]
    if spatial != (1, 1, 1):
        assert "call optimizer.reduce_gradients() before scaler.unscale_" in found["scaled"]["refused"]
    is_alone = groups == 1
    for nans in found["poisoned"]:
        assert nans == ([place == 3 for place in range(40)] if is_alone else [True] * 40)
    weights, shapes, options = found["unlike"]
    assert "other weights on rank" in weights
    assert "DistributedDataParallel" in weights
    assert "other parameters on rank" in shapes
    assert "other options on rank" in options
