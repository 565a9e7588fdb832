"""States that a loader refuses: of something else, damaged, and of what has no order or position."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from torch.utils.data import IterableDataset

import voxload
from tests.loader.order.state_cases import SAMPLES, Backwards, Numbers, generator, loader_of, take
from voxload.errors import UsageError

REFUSED: dict[str, tuple[Callable[[], voxload.DataLoader], str]] = {
    "data": (lambda: voxload.DataLoader(Numbers(SAMPLES + 1), 3, shuffle=True), "data of the loader's state"),
    "class": (lambda: voxload.DataLoader(range(SAMPLES), 3, shuffle=True), "data of the loader's state"),
    "seed": (lambda: voxload.DataLoader(Numbers(), 3, shuffle=True, generator=generator(9)), "seed of the loader's"),
    "kind": (lambda: voxload.DataLoader(Numbers(), 3), "sampler of the loader's state"),
    "list": (lambda: voxload.DataLoader(Numbers(), 3, sampler=[0, 1]), "sampler of the loader's state"),
    "unknown": (lambda: voxload.DataLoader(Numbers(), 3, sampler=Backwards()), "sampler of the loader's state"),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_a_state_of_something_else_is_refused(case: str) -> None:
    """Other data, another seed and another sampler are errors, and leave the loader as it was."""
    loader = loader_of("shuffled with a generator")
    take(iter(loader), 2)
    make, message = REFUSED[case]
    other = make()
    before = other.state_dict()
    with pytest.raises(UsageError, match=message):
        other.load_state_dict(loader.state_dict())
    assert other.state_dict() == before


def test_damaged_states_are_refused() -> None:
    """Another format, missing parts and positions beyond the end are errors."""
    loader = loader_of("sequential")
    state = loader.state_dict()
    for damaged in (
        {**state, "version": 2},
        {name: value for name, value in state.items() if name != "order"},
        {**state, "more": 1},
        {**state, "position": SAMPLES + 1},
        {**state, "position": -1},
        {"_snapshot": {}, "_num_workers": 0},
        [1],
    ):
        with pytest.raises(UsageError, match="loader's state"):
            loader.load_state_dict(damaged)  # type: ignore[arg-type] # a list is one of the errors


def test_an_unknown_sampler_that_draws_otherwise_is_refused() -> None:
    """What is drawn again is compared with what was delivered."""
    loader = loader_of("unknown")
    take(iter(loader), 3)
    state = loader.state_dict()
    for last, message in ((SAMPLES - 2, "other samples"), (3, "end of the epoch after 1 batches")):
        other = voxload.DataLoader(Numbers(), 3, sampler=Backwards(last))
        other.load_state_dict(state)
        with pytest.raises(UsageError, match=message):
            take(other)


def test_iterable_data_sets_are_refused() -> None:
    """What has no order cannot be gone on with: the error names who can."""

    class Stream(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            yield from range(3)

    loader = voxload.DataLoader(Stream())
    assert len(take(loader)) == 3
    for call in (loader.state_dict, lambda: loader.load_state_dict({})):
        with pytest.raises(UsageError, match="torchdata's StatefulDataLoader"):
            call()


def test_batches_out_of_order_have_no_position() -> None:
    """With in_order=False a state is refused half-way, and given between epochs."""
    loader = loader_of("sequential", 2, in_order=False)
    batches = iter(loader)
    next(batches)
    with pytest.raises(UsageError, match="in_order=False"):
        loader.state_dict()
    take(batches)
    assert loader.state_dict()["epoch"] == 1
