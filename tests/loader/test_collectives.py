"""Ranks of a sample group that draw different samples are told so, on real processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import pytest

from tests.support.ranks import printed_by_ranks


@pytest.fixture(scope="module")
def ranks(folder: Path) -> list[dict[str, Any]]:
    """Run four ranks as two groups of two and return what each printed."""
    script = Path(__file__).parent / "rank_agreement.py"
    done = printed_by_ranks(script, folder, ranks=4)
    return sorted((json.loads(line) for line in done.splitlines()), key=lambda row: int(row["rank"]))


def test_ranks_that_agree_load_their_blocks(ranks: list[dict[str, Any]], folder: Path) -> None:
    """Two groups of two ranks load their own samples, each rank its own half."""
    found = [rank["good"] for rank in ranks]
    assert [row["error"] for row in found] == [""] * 4
    for group, samples in ((0, range(4)), (1, range(4, 8))):
        halves = zip(found[2 * group]["sums"], found[2 * group + 1]["sums"], strict=True)
        for index, sums in zip(samples, halves, strict=True):
            with h5py.File(folder / f"u{index:02}.h5") as file:
                assert sum(sums) == int(file["full"][()].sum())


@pytest.mark.parametrize("case", ["swapped", "short"])
def test_ranks_that_differ_are_refused(ranks: list[dict[str, Any]], case: str) -> None:
    """Another order, or an epoch that ends earlier, raises on both ranks of that group and on no other."""
    found = [rank[case] for rank in ranks]
    assert [row["error"] for row in found[:2]] == ["", ""]
    for row in found[2:]:
        assert len(row["sums"]) == 2
        assert "sample group 1, step 2: found ranks [3] with other samples than rank 2" in row["error"]
