"""Marks: a generator's place in its stream, found without touching it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from voxload.errors import UsageError
from voxload.loader.order.generators import GeneratorPositions, generator_at


def _state(generator: torch.Generator) -> bytes:
    return bytes(generator.get_state().numpy().tobytes())


@given(
    seed=st.integers(-(2**63), 2**64 - 1),
    counts=st.lists(st.one_of(st.integers(1, 700), st.integers(1, 5000)), max_size=5),
    is_wide=st.booleans(),
)
def test_a_mark_is_where_the_generator_is(seed: int, counts: list[int], is_wide: bool) -> None:
    """Marks of one generator, found one after another, each lead back to the very state; the generator is as before."""
    generator, marks = torch.Generator().manual_seed(seed), GeneratorPositions()
    for count in [0, *counts]:
        torch.randperm(count + 1, generator=generator)
        if is_wide:
            torch.empty((), dtype=torch.int64).random_(generator=generator)
        before = _state(generator)
        mark = marks.of(generator)
        assert set(mark) == {"seed", "draws"}
        assert mark == GeneratorPositions().of(generator)
        assert _state(generator) == before == _state(generator_at(mark))


def test_a_generator_that_is_seeded_again_is_found_again() -> None:
    """Seeding anew, with the same seed or another one, begins a new stream."""
    generator, marks = torch.Generator().manual_seed(3), GeneratorPositions()
    torch.randperm(5000, generator=generator)
    assert marks.of(generator) == {"seed": 3, "draws": 4999}
    assert marks.of(generator.manual_seed(3)) == {"seed": 3, "draws": 0}
    assert marks.of(generator.manual_seed(4)) == {"seed": 4, "draws": 0}


def test_what_two_numbers_cannot_say_is_said_by_the_raw_state() -> None:
    """Half a pair of normals, or more draws than are searched, are kept as the raw state."""
    generator, marks = torch.Generator().manual_seed(3), GeneratorPositions()
    torch.empty(3).normal_(generator=generator)
    for _ in range(2):
        mark = marks.of(generator)
        assert set(mark) == {"state"}
        assert _state(generator_at(mark)) == _state(generator)
        torch.randperm(10, generator=generator)


@pytest.mark.parametrize("mark", [{}, {"seed": 3}, {"seed": "x", "draws": 1}, {"state": "zz"}, {"state": "00"}])
def test_what_is_no_mark_is_refused(mark: dict[str, object]) -> None:
    """A damaged mark is the caller's error."""
    with pytest.raises(UsageError, match="expected a generator's mark"):
        generator_at(mark)
