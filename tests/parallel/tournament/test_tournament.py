"""Tournaments of real trainers: models, whole or in parts, go from rank to rank of equal coordinates."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.ranks import RANK, run_ranks


def test_the_better_model_is_kept(tmp_path: Path) -> None:
    """By both, or by each its own; of one that does not come, or of another network, nothing is taken."""
    ended = run_ranks(Path(__file__).parent / "rank_tournament.py", RANK, "4", tmp_path, ranks=4)
    assert [each.status for each in ended] == [0] * 4, "\n".join(each.errors[-2000:] for each in ended)
    for rank in range(4):
        trainer = rank // 2
        found = json.loads((tmp_path / f"report-{rank}.json").read_text())
        adopted = [trainer == 1, trainer == 0]
        for name in ("whole", "cut"):
            assert found[name]["rounds"] == [
                [adopted[0], False, 1 - trainer, [1.0]],
                [adopted[1], False, 1 - trainer, [2.0]],
            ]
        for number, (is_adopted, is_forfeit, model, numbers) in enumerate(found["truncation"]["rounds"]):
            assert (is_adopted, is_forfeit, numbers) == (adopted[number], False, [number + 1.0])
            assert model == number
        assert found["alone"]["forfeit"] == [False, True, [trainer + 1.0]]
        assert "a trainer of another network" in found["alone"]["unlike"]
