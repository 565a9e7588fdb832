"""Ways to deal batches of volumes out to ranks."""

from __future__ import annotations

from math import prod

from hypothesis import given
from hypothesis import strategies as st

from voxload.plan.forecast.setups import Setup, setups


@given(
    st.tuples(*(st.integers(1, 64),) * 3),
    st.integers(1, 32),
    st.lists(st.integers(1, 48), min_size=1, max_size=4, unique=True),
)
def test_every_rank_has_a_block_and_every_group_as_many_samples(
    shape: tuple[int, int, int], batch: int, ranks: list[int]
) -> None:
    """Whatever the numbers are; and no setup comes twice."""
    found = list(setups(shape, batch, ranks))
    assert len(found) == len(set(found))
    for each in found:
        assert each.ranks in ranks
        assert each.groups * each.samples == batch
        assert all(count <= extent for count, extent in zip(each.spatial, shape, strict=True))
        assert each.grid.world_size == each.ranks
    for count in ranks:
        if batch % count == 0:
            assert Setup((1, 1, 1), count, batch // count) in found


def test_of_grids_with_as_many_blocks_the_smallest_faces_are_looked_at() -> None:
    """And those that cut depth alone: what they read lies together."""
    found = {each.spatial for each in setups((64, 64, 64), 1, [8])}
    assert found == {(2, 2, 2), (8, 1, 1)}
    assert {each.spatial for each in setups((256, 16, 16), 1, [8])} == {(8, 1, 1)}
    assert {prod(each.spatial) for each in setups((64, 64, 64), 16, [8])} == {1, 2, 4, 8}


def test_the_rank_that_is_looked_at_has_neighbours() -> None:
    """In the middle of its group, where there is one."""
    assert Setup((4, 1, 3), 2, 1).grid.coords == (2, 0, 1)
    assert Setup((4, 1, 3), 2, 1).grid.group == 1
