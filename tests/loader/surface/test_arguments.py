"""Arguments: their order, their defaults, what is refused, and in which words."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, IterableDataset, SequentialSampler
from torch.utils.data import DataLoader as TorchLoader

import voxload

ADDED = ("transform", "staging", "cache", "device", "keep", "readers", "clairvoyant")
"""What torch's loader does not have."""


class Stream(IterableDataset[int]):
    """Ten numbers that come one after another."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(10))


REFUSED: dict[str, dict[str, Any]] = {
    "workers below 0": {"num_workers": -1},
    "workers of another type": {"num_workers": "two"},
    "timeout below 0": {"timeout": -1},
    "prefetch_factor without workers": {"prefetch_factor": 2},
    "prefetch_factor of 0 without workers": {"prefetch_factor": 0},
    "prefetch_factor below 0": {"num_workers": 1, "prefetch_factor": -1},
    "persistent_workers without workers": {"persistent_workers": True},
    "shuffle and sampler": {"shuffle": True, "sampler": [0]},
    "shuffle and batch_sampler": {"shuffle": True, "batch_sampler": [[0]]},
    "batch_size and batch_sampler": {"batch_size": 2, "batch_sampler": [[0]]},
    "no batch_size and batch_sampler": {"batch_size": None, "batch_sampler": [[0]]},
    "sampler and batch_sampler": {"sampler": [0], "batch_sampler": [[0]]},
    "drop_last and batch_sampler": {"drop_last": True, "batch_sampler": [[0]]},
    "drop_last without batches": {"batch_size": None, "drop_last": True},
    "no samples in a batch": {"batch_size": 0},
    "batches below 0": {"batch_size": -3},
    "batches by truth": {"batch_size": True},
    "batches by name": {"batch_size": "3"},
    "drop_last of another type": {"drop_last": "yes"},
    "a context without workers": {"multiprocessing_context": "fork"},
    "a context by an unknown name": {"num_workers": 1, "multiprocessing_context": "spoon"},
    "a context of another type": {"num_workers": 1, "multiprocessing_context": 7},
    "an unknown argument": {"batchsize": 2},
    "several wrong at once": {"num_workers": -1, "timeout": -1, "batch_size": 0},
}
REFUSED_OF_STREAMS: dict[str, dict[str, Any]] = {
    "shuffle": {"shuffle": True},
    "sampler": {"sampler": [0, 1]},
    "batch_sampler": {"batch_sampler": [[0, 1]]},
    "all of them": {"shuffle": True, "sampler": [0], "batch_sampler": [[0]]},
}
REFUSED_AT_THE_FIRST_EPOCH: dict[str, dict[str, Any]] = {
    "timeout without workers": {"timeout": 1},
    "prefetch_factor of 0": {"num_workers": 1, "prefetch_factor": 0},
}


def test_torchs_arguments_come_first_and_as_in_torch() -> None:
    """Order, names, kinds and defaults are torch's; what is added is given by name only."""
    theirs = list(inspect.signature(TorchLoader.__init__).parameters.values())
    ours = list(inspect.signature(voxload.DataLoader.__init__).parameters.values())
    assert [(one.name, one.kind, one.default) for one in ours[: len(theirs)]] == [
        (one.name, one.kind, one.default) for one in theirs
    ]
    added = ours[len(theirs) :]
    assert {one.name for one in added} <= {*ADDED, "kwargs"}
    assert all(one.kind in (one.KEYWORD_ONLY, one.VAR_KEYWORD) for one in added)


def test_every_argument_goes_by_position(both: Any, same: Callable[..., None]) -> None:
    """Thirteen arguments may be given in torch's order."""

    def check(kind: Any, data: Any) -> Any:
        given = (2, None, None, None)  # batch_size, shuffle, sampler, batch_sampler
        collate, generator = list, torch.Generator().manual_seed(3)
        loader = kind(data, *given, 1, collate, 0, 1, 30, None, "fork", generator)
        return [
            (loader.batch_size, loader.num_workers, loader.collate_fn is collate, loader.pin_memory, loader.drop_last),
            (loader.timeout, type(loader.multiprocessing_context).__name__, loader.generator is generator),
            list(loader),
        ]

    same(check, both)


@pytest.mark.parametrize("arguments", REFUSED.values(), ids=list(REFUSED))
def test_what_torch_refuses_is_refused(both: Any, arguments: dict[str, Any], same: Callable[..., None]) -> None:
    """Wrong and contradicting arguments raise at once, the first one first."""
    same(lambda kind, data: str(kind(data, **arguments)), both)


@pytest.mark.parametrize("arguments", REFUSED_OF_STREAMS.values(), ids=list(REFUSED_OF_STREAMS))
def test_what_streams_cannot_take_is_refused(arguments: dict[str, Any], same: Callable[..., None]) -> None:
    """Iterable data sets take no order."""

    def check(kind: Any, data: Any) -> Any:
        try:
            return str(kind(data, **arguments))
        except ValueError as error:
            return str(error)

    same(check, Stream())


# torch's iterator that was refused half-made cannot be finalised without a word.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("arguments", REFUSED_AT_THE_FIRST_EPOCH.values(), ids=list(REFUSED_AT_THE_FIRST_EPOCH))
def test_what_is_refused_late_is_refused_late(both: Any, arguments: dict[str, Any], same: Callable[..., None]) -> None:
    """Some contradictions raise only when an iterator is made."""

    def check(kind: Any, data: Any) -> Any:
        loader = kind(data, **arguments)
        try:
            iter(loader)
        except AssertionError as error:
            return str(error) if says_why else "refused"

    says_why = "requires timeout == 0" in inspect.getsource(torch.utils.data.dataloader)  # older ones say nothing
    same(check, both)
    gc.collect()


def test_the_number_of_arguments_is_checked(both: Any, same: Callable[..., None]) -> None:
    """A fourteenth argument by position, and none at all, raise as in torch."""
    same(lambda kind, data: kind(data, 1, *[None] * 3, 0, None, 0, 0, 0, *[None] * 3, 2), both)
    same(lambda kind, _: kind(), both)


def test_a_context_is_looked_up(both: Any, same: Callable[..., None]) -> None:
    """The context is a property whose setter checks names, types and the number of workers."""

    def check(kind: Any, data: Any) -> Any:
        loader = kind(data, num_workers=1)
        found: list[Any] = [loader.multiprocessing_context]
        for context in ("fork", torch.multiprocessing.get_context("spawn"), None, "spoon", 7):
            try:
                loader.multiprocessing_context = context
                found.append(type(loader.multiprocessing_context).__name__)
            except (ValueError, TypeError) as error:
                found.append((type(error).__name__, str(error)))
        alone = kind(data)
        alone.multiprocessing_context = None
        try:
            alone.multiprocessing_context = "fork"
        except ValueError as error:
            found.append(str(error))
        return found

    same(check, both)


def test_processes_are_warned_of(plain: Any, data: voxload.VolumeDataset, same: Callable[..., None]) -> None:
    """More worker processes than cores are warned of; threads are none, and a worker_init_fn is not called by them."""
    same(lambda kind, given: str(len(kind(given, num_workers=1000))), plain)
    with pytest.warns(UserWarning, match="worker_init_fn is not called") as caught:
        loader = voxload.DataLoader(data, num_workers=1000, worker_init_fn=print)
    assert len(caught) == 1
    assert loader.worker_init_fn is print


def test_defaults_make_torchs_samplers(both: Any, same: Callable[..., None]) -> None:
    """Without a sampler there are torch's own, with the generator that is given."""

    def check(kind: Any, data: Any) -> Any:
        generator = torch.Generator()
        ordered, shuffled = kind(data, 2), kind(data, 2, shuffle=True, generator=generator, drop_last=True)
        batches: Any = shuffled.batch_sampler
        return [
            type(ordered.sampler) is SequentialSampler,
            type(ordered.batch_sampler) is BatchSampler,
            type(shuffled.sampler).__name__,
            shuffled.sampler.generator is generator,
            (batches.batch_size, batches.drop_last, batches.sampler is shuffled.sampler),
        ]

    same(check, both)
