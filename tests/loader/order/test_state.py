"""state_dict and load_state_dict over torch's own iterators: any map-style data set, sampler and worker count."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler
from torch.utils.data import DataLoader as TorchLoader

import voxload
from tests.loader.order.state_cases import (
    CASES,
    SAMPLES,
    SEEDLESS,
    Numbers,
    Stateful,
    flat,
    generator,
    loader_of,
    take,
)


@pytest.mark.long
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
    theirs = [take(theirs_loader) for _ in range(epoch + 2)]
    after = torch.rand(1)
    torch.default_generator.manual_seed(seed)
    loader = loader_of(case)
    assert [take(loader) for _ in range(epoch + 2)] == theirs
    assert torch.equal(torch.rand(1), after)

    torch.default_generator.manual_seed(seed)
    loader = loader_of(case)
    for _ in range(epoch):
        take(loader)
    count = round(share * len(theirs[epoch]))
    batches = iter(loader)
    assert take(batches, count) == theirs[epoch][:count]
    text = json.dumps(loader.state_dict())
    assert len(text) < 1024
    state = json.loads(text)
    assert state["epoch"] == (0 if case == "distributed" else epoch)  # which is told the number, or keeps it
    assert take(batches) == theirs[epoch][count:]  # it was not disturbed

    torch.default_generator.manual_seed(seed + 100)
    resumed = loader_of(case)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    rest = take(resumed)
    if count or case not in SEEDLESS:
        assert rest == theirs[epoch][count:]
    if case not in SEEDLESS:
        assert take(resumed) == theirs[epoch + 1]


@pytest.mark.few_cases(2)
@pytest.mark.parametrize(
    "case",
    [
        "shuffled with a generator",
        "unknown",
        *(pytest.param(case, marks=pytest.mark.long) for case in ("stateful", "single", "distributed")),
    ],
)
@pytest.mark.parametrize("persistent", [False, pytest.param(True, marks=pytest.mark.long)])
def test_worker_processes_prefetch_nothing_away(case: str, persistent: bool) -> None:
    """What worker processes drew ahead is not counted before it is delivered."""
    # With workers that persist, torch draws their seed once, and all epochs but the first differ.
    reference = TorchLoader(Numbers(), num_workers=1, persistent_workers=persistent, **CASES[case]())
    whole = [take(reference) for _ in range(3)]
    loader = loader_of(case, 2, persistent_workers=persistent)
    take(loader)
    batches = iter(loader)
    take(batches, 2)
    state = loader.state_dict()
    resumed = loader_of(case, 1, persistent_workers=persistent)
    resumed.load_state_dict(state)
    assert take(resumed) == whole[1][2:]
    assert take(resumed) == whole[2]
    assert take(batches) == whole[1][2:]


def test_the_end_of_an_epoch_is_the_beginning_of_the_next() -> None:
    """After the last batch nothing is left; after StopIteration the next epoch is to begin."""
    for case in ("shuffled with a generator", "stateful", "unknown"):
        reference = loader_of(case)
        first, second = take(reference), take(reference)
        loader = loader_of(case)
        batches = iter(loader)
        take(batches, len(first))
        at_end = loader.state_dict()
        assert next(batches, None) is None
        behind = loader.state_dict()
        assert (at_end["epoch"], behind["epoch"], behind["position"]) == (0, 1, 0)
        for state, expected in ((at_end, []), (behind, second)):
            resumed = loader_of(case)
            resumed.load_state_dict(state)
            assert take(resumed) == expected
            if not expected:
                assert take(resumed) == second


def test_a_state_of_a_resumed_epoch_is_one_of_the_whole_epoch() -> None:
    """States may be saved and loaded again and again within one epoch, also when nothing happened in between."""
    whole = take(loader_of("shuffled with a generator"))
    got: list[Any] = []
    state: dict[str, Any] = {}
    while len(got) < len(whole):
        loader = loader_of("shuffled with a generator")
        loader.load_state_dict(state)
        batches = iter(loader)
        got += take(batches, 1)
        loader.load_state_dict(loader.state_dict())
        state = loader.state_dict()
    assert got == whole


def test_other_batch_sizes_go_on_in_the_same_order() -> None:
    """The position is one in samples."""
    loader = voxload.DataLoader(Numbers(), 5, shuffle=True)
    batches = iter(loader)
    done = flat(take(batches, 2))
    resumed = voxload.DataLoader(Numbers(), 4, shuffle=True)
    resumed.load_state_dict(loader.state_dict())
    left = flat(take(resumed))
    assert left == flat(take(batches))
    assert sorted(done + left) == list(range(SAMPLES))


def test_the_latest_iterator_counts() -> None:
    """With several iterators the state is the one of the last one made; the others go on unharmed."""
    loader = loader_of("sequential")
    first, second = iter(loader), iter(loader)
    take(first, 4)
    take(second, 1)
    assert loader.state_dict()["position"] == 3
    assert loader.state_dict()["epoch"] == 1
    assert len(take(first)) == 4


def test_loading_half_way_is_for_the_next_iterator() -> None:
    """An iterator under way is not touched; what was loaded is what is saved, until an iterator is made."""
    loader = loader_of("sequential")
    batches = iter(loader)
    take(batches, 5)
    state = loader.state_dict()
    loader.load_state_dict({})
    assert loader.state_dict()["position"] == 0
    loader.load_state_dict(state)
    take(batches, 1)
    assert loader.state_dict() == state
    assert len(take(loader)) == 3


def test_an_empty_state_forgets() -> None:
    """``{}`` begins afresh, as torchdata's loader does."""
    loader = loader_of("sequential")
    take(iter(loader), 2)
    loader.load_state_dict(loader.state_dict())
    loader.load_state_dict({})
    assert loader.state_dict()["epoch"] == 0
    assert len(take(loader)) == 8


@pytest.mark.long
def test_a_batch_that_raised_counts() -> None:
    """The iterator goes on behind a batch that could not be loaded, and so does who resumes."""
    for workers in (0, 2):
        loader = voxload.DataLoader(Numbers(broken=4), 2, num_workers=workers)
        batches = iter(loader)
        take(batches, 2)
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
        whole[epoch] = take(loader)
    sampler.set_epoch(2)
    take(iter(loader), 1)
    state = loader.state_dict()
    assert state["epoch"] == 2
    for epoch, expected in ((2, whole[2][1:]), (3, whole[3])):
        sampler, loader = made()
        loader.load_state_dict(state)
        assert sampler.epoch == 2
        sampler.set_epoch(epoch)
        assert take(loader) == expected
    for epoch, expected in ((2, whole[2][1:]), (3, whole[3])):
        _, loader = made()
        loader.load_state_dict(state)
        loader.set_epoch(epoch)
        assert take(loader) == expected


@pytest.mark.parametrize("case", ["shuffled", "shuffled with a generator", "subset"])
def test_epochs_that_are_chosen_by_number_are_the_same_each_time(case: str) -> None:
    """Samplers that know no epochs draw what follows from seed and number, and so do the epochs behind."""
    torch.default_generator.manual_seed(8)
    loader = loader_of(case)
    loader.set_epoch(4)
    fourth, fifth = take(loader), take(loader)
    assert fourth != fifth
    loader.set_epoch(5)
    assert take(loader) == fifth
    loader.set_epoch(4)
    batches = iter(loader)
    take(batches, 2)
    state = loader.state_dict()
    assert state["epoch"] == 4
    again = loader_of(case)
    torch.default_generator.manual_seed(8)
    again.load_state_dict(state)
    assert take(again) == fourth[2:]
    assert take(again) == fifth
    if case != "subset":
        sampler = RandomSampler(Numbers(), generator=generator(4 + (8 if case == "shuffled" else 3)))
        assert flat(fourth) == list(sampler)


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
    assert take(loader) == take(TorchLoader(data, 2, sampler=sampler))


def test_a_stateful_sampler_draws_nothing_again() -> None:
    """A sampler that gives its own state is not drawn from its beginning."""
    loader = loader_of("stateful")
    take(iter(loader), 5)
    sampler = Stateful()
    resumed = voxload.DataLoader(Numbers(), 3, sampler=sampler)
    resumed.load_state_dict(loader.state_dict())
    assert len(flat(take(resumed))) == sampler.drawn == SAMPLES - 15


@pytest.mark.long
def test_saving_takes_no_time() -> None:
    """A state takes as many calls, and few bytes, whatever the length of the data set and the place in it."""
    calls = set()
    for length, place in ((1_000, 1), (1_000, 5), (1_000_000, 5), (1_000_000, 5_000)):
        loader = voxload.DataLoader(Numbers(length), 100, shuffle=True, generator=generator())
        batches = iter(loader)
        take(batches, place)
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
    loader = loader_of("sequential")
    assert loader._index_sampler is loader.batch_sampler
    theirs = TorchLoader(Numbers(), 3)
    assert isinstance(iter(loader), type(iter(theirs)))
    assert iter(loader)._profile_name == iter(theirs)._profile_name
    assert len(iter(loader)) == len(iter(theirs))
