"""state_dict and load_state_dict over torch's own iterators: any map-style data set, sampler and worker count."""

from __future__ import annotations

import itertools
import json
import pickle
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.utils.data import (
    BatchSampler,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data import DataLoader as TorchLoader

import voxload
from voxload.errors import UsageError

SAMPLES = 23


class Numbers(Dataset[int]):
    """Each sample is its index; one may be broken."""

    def __init__(self, samples: int = SAMPLES, broken: int = -1) -> None:
        self.samples = samples
        self.broken = broken

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> int:
        if index == self.broken:
            raise KeyError(index)
        return index


class Backwards(Sampler[int]):
    """A sampler that nobody knows."""

    def __init__(self, last: int = SAMPLES - 1) -> None:
        self.last = last

    def __len__(self) -> int:
        return self.last

    def __iter__(self) -> Iterator[int]:
        yield from range(self.last, 0, -1)


class Stateful(Sampler[int]):
    """A sampler of which no two epochs are equal, and which says where it is."""

    def __init__(self) -> None:
        self.epoch_seed = 5
        self.done = 0
        self.drawn = 0

    def __len__(self) -> int:
        return SAMPLES

    def __iter__(self) -> Iterator[int]:
        order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(self.epoch_seed)).tolist()
        for index in order[self.done :]:
            self.done += 1
            self.drawn += 1
            yield index
        self.done = 0
        self.epoch_seed += 1

    def state_dict(self) -> dict[str, int]:
        """Return where it is."""
        return {"done": self.done, "epoch_seed": self.epoch_seed}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on there."""
        self.done, self.epoch_seed = state["done"], state["epoch_seed"]


def _generator(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "sequential": lambda: {"batch_size": 3},
    "dropped": lambda: {"batch_size": 4, "drop_last": True},
    "shuffled": lambda: {"shuffle": True, "batch_size": 3},
    "shuffled with a generator": lambda: {"shuffle": True, "batch_size": 3, "generator": _generator()},
    "generator of its own": lambda: {"sampler": RandomSampler(Numbers(), generator=_generator()), "batch_size": 3},
    "single": lambda: {"batch_size": None, "shuffle": True, "generator": _generator()},
    "replacement": lambda: {
        "sampler": RandomSampler(Numbers(), replacement=True, num_samples=70, generator=_generator()),
        "batch_size": 5,
    },
    "more than all": lambda: {"sampler": RandomSampler(Numbers(), num_samples=60), "batch_size": 5},
    "subset": lambda: {"sampler": SubsetRandomSampler(range(3, 19)), "batch_size": 3},
    "weighted": lambda: {
        "sampler": WeightedRandomSampler([1.0, 2.0, 3.0] * 7, 40, generator=_generator()),
        "batch_size": 3,
    },
    "list": lambda: {"sampler": [3, 1, 4, 1, 5, -9, 2, 6], "batch_size": 3},
    "distributed": lambda: {"sampler": DistributedSampler(Numbers(), 3, 1, seed=4), "batch_size": 2},
    "batch sampler": lambda: {
        "batch_sampler": BatchSampler(RandomSampler(Numbers(), generator=_generator()), 4, drop_last=True)
    },
    "lists of lists": lambda: {"batch_sampler": [[1, 2], [3], [4, 5, 6], [7]]},
    "unknown": lambda: {"sampler": Backwards(), "batch_size": 3},
    "stateful": lambda: {"sampler": Stateful(), "batch_size": 3},
    "stateful batches": lambda: {"batch_sampler": BatchSampler(Stateful(), 4, drop_last=True)},
}
SEEDLESS = ("shuffled", "more than all", "subset")
"""Cases of which torch's global generator seeds each epoch, when its first batch is drawn."""


def _take(batches: Any, count: int | None = None) -> list[Any]:
    return [batch.tolist() if isinstance(batch, torch.Tensor) else batch for batch in itertools.islice(batches, count)]


def _flat(batches: list[Any]) -> list[int]:
    return [index for batch in batches for index in batch]


def _loader(case: str, workers: int = 0, **more: Any) -> voxload.DataLoader:
    return voxload.DataLoader(Numbers(), num_workers=workers, **CASES[case](), **more)


@settings(max_examples=150)
@example(case="stateful", epoch=1, share=0.0, seed=0)  # nothing drawn yet, and no two epochs alike
@given(case=st.sampled_from(sorted(CASES)), epoch=st.integers(0, 2), share=st.floats(0, 1), seed=st.integers(0, 9))
def test_the_epoch_goes_on_behind_the_last_batch(case: str, epoch: int, share: float, seed: int) -> None:
    """For every sampler, from any place of any epoch, a new loader gets what the old one, which is torch's, would have.

    The epochs behind it are the same too, where they follow from what the state can know. Nothing is drawn from
    torch's generator that torch would not have drawn.
    """
    torch.default_generator.manual_seed(seed)
    theirs_loader = TorchLoader(Numbers(), **CASES[case]())
    theirs = [_take(theirs_loader) for _ in range(epoch + 2)]
    after = torch.rand(1)
    torch.default_generator.manual_seed(seed)
    loader = _loader(case)
    assert [_take(loader) for _ in range(epoch + 2)] == theirs
    assert torch.equal(torch.rand(1), after)

    torch.default_generator.manual_seed(seed)
    loader = _loader(case)
    for _ in range(epoch):
        _take(loader)
    count = round(share * len(theirs[epoch]))
    batches = iter(loader)
    assert _take(batches, count) == theirs[epoch][:count]
    text = json.dumps(loader.state_dict())
    assert len(text) < 1024
    state = json.loads(text)
    assert state["epoch"] == (0 if case == "distributed" else epoch)  # which is told the number, or keeps it
    assert _take(batches) == theirs[epoch][count:]  # it was not disturbed

    torch.default_generator.manual_seed(seed + 100)
    resumed = _loader(case)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    rest = _take(resumed)
    if count or case not in SEEDLESS:
        assert rest == theirs[epoch][count:]
    if case not in SEEDLESS:
        assert _take(resumed) == theirs[epoch + 1]


@pytest.mark.parametrize("case", ["shuffled with a generator", "unknown", "stateful", "single", "distributed"])
@pytest.mark.parametrize("persistent", [False, pytest.param(True, marks=pytest.mark.long)])
def test_worker_processes_prefetch_nothing_away(case: str, persistent: bool) -> None:
    """What worker processes drew ahead is not counted before it is delivered."""
    # With workers that persist, torch draws their seed once, and all epochs but the first differ.
    reference = TorchLoader(Numbers(), num_workers=1, persistent_workers=persistent, **CASES[case]())
    whole = [_take(reference) for _ in range(3)]
    loader = _loader(case, 2, persistent_workers=persistent)
    _take(loader)
    batches = iter(loader)
    _take(batches, 2)
    state = loader.state_dict()
    resumed = _loader(case, 1, persistent_workers=persistent)
    resumed.load_state_dict(state)
    assert _take(resumed) == whole[1][2:]
    assert _take(resumed) == whole[2]
    assert _take(batches) == whole[1][2:]


def test_the_end_of_an_epoch_is_the_beginning_of_the_next() -> None:
    """After the last batch nothing is left; after StopIteration the next epoch is to begin."""
    for case in ("shuffled with a generator", "stateful", "unknown"):
        reference = _loader(case)
        first, second = _take(reference), _take(reference)
        loader = _loader(case)
        batches = iter(loader)
        _take(batches, len(first))
        at_end = loader.state_dict()
        assert next(batches, None) is None
        behind = loader.state_dict()
        assert (at_end["epoch"], behind["epoch"], behind["position"]) == (0, 1, 0)
        for state, expected in ((at_end, []), (behind, second)):
            resumed = _loader(case)
            resumed.load_state_dict(state)
            assert _take(resumed) == expected
            if not expected:
                assert _take(resumed) == second


def test_a_state_of_a_resumed_epoch_is_one_of_the_whole_epoch() -> None:
    """States may be saved and loaded again and again within one epoch, also when nothing happened in between."""
    whole = _take(_loader("shuffled with a generator"))
    got: list[Any] = []
    state: dict[str, Any] = {}
    while len(got) < len(whole):
        loader = _loader("shuffled with a generator")
        loader.load_state_dict(state)
        batches = iter(loader)
        got += _take(batches, 1)
        loader.load_state_dict(loader.state_dict())
        state = loader.state_dict()
    assert got == whole


def test_other_batch_sizes_go_on_in_the_same_order() -> None:
    """The position is one in samples."""
    loader = voxload.DataLoader(Numbers(), 5, shuffle=True)
    batches = iter(loader)
    done = _flat(_take(batches, 2))
    resumed = voxload.DataLoader(Numbers(), 4, shuffle=True)
    resumed.load_state_dict(loader.state_dict())
    left = _flat(_take(resumed))
    assert left == _flat(_take(batches))
    assert sorted(done + left) == list(range(SAMPLES))


def test_the_latest_iterator_counts() -> None:
    """With several iterators the state is the one of the last one made; the others go on unharmed."""
    loader = _loader("sequential")
    first, second = iter(loader), iter(loader)
    _take(first, 4)
    _take(second, 1)
    assert loader.state_dict()["position"] == 3
    assert loader.state_dict()["epoch"] == 1
    assert len(_take(first)) == 4


def test_loading_half_way_is_for_the_next_iterator() -> None:
    """An iterator under way is not touched; what was loaded is what is saved, until an iterator is made."""
    loader = _loader("sequential")
    batches = iter(loader)
    _take(batches, 5)
    state = loader.state_dict()
    loader.load_state_dict({})
    assert loader.state_dict()["position"] == 0
    loader.load_state_dict(state)
    _take(batches, 1)
    assert loader.state_dict() == state
    assert len(_take(loader)) == 3


def test_an_empty_state_forgets() -> None:
    """``{}`` begins afresh, as torchdata's loader does."""
    loader = _loader("sequential")
    _take(iter(loader), 2)
    loader.load_state_dict(loader.state_dict())
    loader.load_state_dict({})
    assert loader.state_dict()["epoch"] == 0
    assert len(_take(loader)) == 8


def test_a_batch_that_raised_counts() -> None:
    """The iterator goes on behind a batch that could not be loaded, and so does who resumes."""
    for workers in (0, 2):
        loader = voxload.DataLoader(Numbers(broken=4), 2, num_workers=workers)
        batches = iter(loader)
        _take(batches, 2)
        with pytest.raises(KeyError):
            next(batches)
        assert loader.state_dict()["position"] == 6
        assert next(batches).tolist() == [6, 7]
        assert [batch.tolist() for batch in batches]  # to the end: else torch waits for its workers


def test_the_epoch_that_the_user_chooses_wins() -> None:
    """A state is for one epoch: choosing the same number changes nothing, another number begins that epoch afresh."""

    def made() -> tuple[DistributedSampler[int], voxload.DataLoader]:
        sampler: DistributedSampler[int] = DistributedSampler(Numbers(), 2, 0, seed=1)
        return sampler, voxload.DataLoader(Numbers(), 3, sampler=sampler)

    sampler, loader = made()
    whole = {}
    for epoch in (2, 3):
        sampler.set_epoch(epoch)
        whole[epoch] = _take(loader)
    sampler.set_epoch(2)
    _take(iter(loader), 1)
    state = loader.state_dict()
    assert state["epoch"] == 2
    for epoch, expected in ((2, whole[2][1:]), (3, whole[3])):
        sampler, loader = made()
        loader.load_state_dict(state)
        assert sampler.epoch == 2
        sampler.set_epoch(epoch)
        assert _take(loader) == expected
    for epoch, expected in ((2, whole[2][1:]), (3, whole[3])):
        _, loader = made()
        loader.load_state_dict(state)
        loader.set_epoch(epoch)
        assert _take(loader) == expected


@pytest.mark.parametrize("case", ["shuffled", "shuffled with a generator", "subset"])
def test_epochs_that_are_chosen_by_number_are_the_same_each_time(case: str) -> None:
    """Samplers that know no epochs draw what follows from seed and number, and so do the epochs behind."""
    torch.default_generator.manual_seed(8)
    loader = _loader(case)
    loader.set_epoch(4)
    fourth, fifth = _take(loader), _take(loader)
    assert fourth != fifth
    loader.set_epoch(5)
    assert _take(loader) == fifth
    loader.set_epoch(4)
    batches = iter(loader)
    _take(batches, 2)
    state = loader.state_dict()
    assert state["epoch"] == 4
    again = _loader(case)
    torch.default_generator.manual_seed(8)
    again.load_state_dict(state)
    assert _take(again) == fourth[2:]
    assert _take(again) == fifth
    if case != "subset":
        sampler = RandomSampler(Numbers(), generator=_generator(4 + (8 if case == "shuffled" else 3)))
        assert _flat(fourth) == list(sampler)


def test_set_epoch_reaches_whoever_counts_epochs() -> None:
    """Sampler, the sampler of a batch sampler, and the data set are told."""

    class Counting(Numbers):
        epoch = -1

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

    data = Counting()
    sampler: DistributedSampler[int] = DistributedSampler(data, 2, 0)
    loader = voxload.DataLoader(data, batch_sampler=BatchSampler(sampler, 2, drop_last=False))
    loader.set_epoch(6)
    assert (data.epoch, sampler.epoch) == (6, 6)
    assert _take(loader) == _take(TorchLoader(data, 2, sampler=sampler))


REFUSED: dict[str, tuple[Callable[[], voxload.DataLoader], str]] = {
    "data": (lambda: voxload.DataLoader(Numbers(SAMPLES + 1), 3, shuffle=True), "data of the loader's state"),
    "class": (lambda: voxload.DataLoader(range(SAMPLES), 3, shuffle=True), "data of the loader's state"),
    "seed": (lambda: voxload.DataLoader(Numbers(), 3, shuffle=True, generator=_generator(9)), "seed of the loader's"),
    "kind": (lambda: voxload.DataLoader(Numbers(), 3), "sampler of the loader's state"),
    "list": (lambda: voxload.DataLoader(Numbers(), 3, sampler=[0, 1]), "sampler of the loader's state"),
    "unknown": (lambda: voxload.DataLoader(Numbers(), 3, sampler=Backwards()), "sampler of the loader's state"),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_a_state_of_something_else_is_refused(case: str) -> None:
    """Other data, another seed and another sampler are errors, and leave the loader as it was."""
    loader = _loader("shuffled with a generator")
    _take(iter(loader), 2)
    make, message = REFUSED[case]
    other = make()
    before = other.state_dict()
    with pytest.raises(UsageError, match=message):
        other.load_state_dict(loader.state_dict())
    assert other.state_dict() == before


def test_damaged_states_are_refused() -> None:
    """Another format, missing parts and positions beyond the end are errors."""
    loader = _loader("sequential")
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
    loader = _loader("unknown")
    _take(iter(loader), 3)
    state = loader.state_dict()
    for last, message in ((SAMPLES - 2, "other samples"), (3, "end of the epoch after 1 batches")):
        other = voxload.DataLoader(Numbers(), 3, sampler=Backwards(last))
        other.load_state_dict(state)
        with pytest.raises(UsageError, match=message):
            _take(other)


def test_a_stateful_sampler_draws_nothing_again() -> None:
    """A sampler that gives its own state is not drawn from its beginning."""
    loader = _loader("stateful")
    _take(iter(loader), 5)
    sampler = Stateful()
    resumed = voxload.DataLoader(Numbers(), 3, sampler=sampler)
    resumed.load_state_dict(loader.state_dict())
    assert len(_flat(_take(resumed))) == sampler.drawn == SAMPLES - 15


def test_iterable_data_sets_are_refused() -> None:
    """What has no order cannot be gone on with: the error names who can."""

    class Stream(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            yield from range(3)

    loader = voxload.DataLoader(Stream())
    assert len(_take(loader)) == 3
    for call in (loader.state_dict, lambda: loader.load_state_dict({})):
        with pytest.raises(UsageError, match="torchdata's StatefulDataLoader"):
            call()


def test_batches_out_of_order_have_no_position() -> None:
    """With in_order=False a state is refused half-way, and given between epochs."""
    loader = _loader("sequential", 2, in_order=False)
    batches = iter(loader)
    next(batches)
    with pytest.raises(UsageError, match="in_order=False"):
        loader.state_dict()
    _take(batches)
    assert loader.state_dict()["epoch"] == 1


def test_saving_takes_no_time() -> None:
    """A state takes as many calls, and few bytes, whatever the length of the data set and the place in it."""
    calls = set()
    for length, place in ((1_000, 1), (1_000, 5), (1_000_000, 5), (1_000_000, 5_000)):
        loader = voxload.DataLoader(Numbers(length), 100, shuffle=True, generator=_generator())
        batches = iter(loader)
        _take(batches, place)
        loader.state_dict()  # what the first one compiles or remembers
        calls.add(_calls(loader.state_dict))
        assert len(pickle.dumps(loader.state_dict())) < 1024
    assert len(calls) == 1, calls


def _calls(work: Callable[[], object]) -> int:
    """Return how many calls, of Python's and of C's functions, `work` makes."""
    calls = list[str]()

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        if event.endswith("call"):
            calls.append(event)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return len(calls)


def test_torchs_private_words_are_kept() -> None:
    """Outside the making of an iterator the index sampler is torch's, and iterators are of torch's classes."""
    loader = _loader("sequential")
    assert loader._index_sampler is loader.batch_sampler
    theirs = TorchLoader(Numbers(), 3)
    assert isinstance(iter(loader), type(iter(theirs)))
    assert iter(loader)._profile_name == iter(theirs)._profile_name
    assert len(iter(loader)) == len(iter(theirs))
