"""Ranks that see a catalogue at different times: an epoch has the same samples on all of them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.growing import grown
from tests.support.ranks import printed_by_ranks

SCRIPT = Path(__file__).parent / "growth_ranks.py"
SAMPLES = {1: 4, 2: 6, 3: 7, 4: 8}
"""Of each generation."""


def test_all_ranks_have_the_generation_that_all_see(tmp_path: Path) -> None:
    """Two groups of two ranks, of which one or the other lags behind, cannot read, or goes on with another state."""
    for generation, numbers in enumerate(((50, 51, 52, 53), (11, 12), (21,), (31,)), 1):
        grown(tmp_path, *numbers, settled=True)
        place = tmp_path / f"{generation}.parquet"
        place.write_bytes((tmp_path / "catalog.parquet").read_bytes())
    told = [json.loads(line) for line in printed_by_ranks(SCRIPT, tmp_path, "2,1,1", ranks=4).splitlines()]
    found = sorted(told, key=lambda one: int(one["rank"]))
    for kind in ("plain", "cached"):
        epochs = [one[kind] for one in found]
        assert [epoch[0] for epoch in epochs[2][:5]] == [1, 2, 2, 3, 4]
        for number, generation in ((0, 1), (1, 2), (2, 2), (3, 3), (4, 4), (6, 4), (8, 3)):
            ours = [one[number] for one in epochs]
            assert {epoch[0] for epoch in ours} == {generation}
            first, again, second, also = (epoch[1] for epoch in ours)
            assert (first, second) == (again, also)
            went = number == 8  # the first batch had been had before
            assert len(first) == len(second) == -(-SAMPLES[generation] // 2) - went
            assert went or len({*first, *second}) == SAMPLES[generation]
        damaged = [one[5] for one in epochs]
        assert [one[0] for one in damaged] == ["StorageError", "DataError", "StorageError", "StorageError"]
        assert all("catalogue as rank 1 sees it" in one[1] for one in damaged if one[0] == "StorageError")
        apart = [one[7] for one in epochs]
        assert {one[0] for one in apart} == {"UsageError"}
        assert all("ranks [1, 2, 3] that go on half-way, and others that begin" in one[1] for one in apart)
    # Each block comes from the storage once, unless a peer takes too long; if nothing were kept, 50 would.
    storage, peer = (sum(one[kind] for one in found) for kind in ("storage", "peer"))
    assert 2 * SAMPLES[4] <= storage < 25
    assert peer > 0
