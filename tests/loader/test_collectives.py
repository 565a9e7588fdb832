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


@pytest.mark.parametrize(("case", "order"), [("good", (0, 1, 2, 3)), ("changed", (0, 3, 2, 1)), ("left", (0, 1, 2, 3))])
def test_ranks_that_agree_load_their_blocks(
    ranks: list[dict[str, Any]], folder: Path, case: str, order: tuple[int, ...]
) -> None:
    """Two groups of two ranks load their own samples, each rank its own half.

    All the same where all samplers change their mind alike, and after all have left an epoch at the same place.
    """
    found = [rank[case] for rank in ranks]
    assert [row["error"] for row in found] == [""] * 4
    for group in (0, 1):
        halves = zip(found[2 * group]["sums"], found[2 * group + 1]["sums"], strict=True)
        for index, sums in zip(order, halves, strict=True):
            with h5py.File(folder / f"u{4 * group + index:02}.h5") as file:
                assert sum(sums) == int(file["full"][()].sum())


@pytest.mark.parametrize(
    ("case", "loaded", "steps"),
    [
        ("swapped", (2, 2), (2, 2)),
        ("short", (2, 2), (2, 2)),
        ("left apart", (0, 0), (2, 0)),  # rank 2 is told by what it had announced, rank 3 by what rank 2 had
        ("skipped", (2, 1), (2, 1)),
    ],
)
def test_ranks_that_differ_are_refused(
    ranks: list[dict[str, Any]], case: str, loaded: tuple[int, int], steps: tuple[int, int]
) -> None:
    """Another order, an end or a beginning before the others', or a batch left out raises on both ranks of that group.

    And on no other.
    """
    found = [rank[case] for rank in ranks]
    assert [row["error"] for row in found[:2]] == ["", ""]
    for row, count, step in zip(found[2:], loaded, steps, strict=True):
        assert len(row["sums"]) == count
        assert f"sample group 1, step {step}: found ranks [3] with other samples than rank 2" in row["error"]
