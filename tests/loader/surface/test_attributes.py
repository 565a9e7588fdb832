"""Attributes: what a loader tells of itself, what may be set later, and loaders made of other loaders."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader

import voxload
from voxload.loader.sampler import GroupSampler

PUBLIC = (
    "batch_size",
    "num_workers",
    "prefetch_factor",
    "pin_memory",
    "pin_memory_device",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "in_order",
    "generator",
    "collate_fn",
    "drop_last",
    "persistent_workers",
)
PRIVATE = ("_dataset_kind", "_auto_collation", "_iterator", "_IterableDataset_len_called")
"""Names that begin with an underscore and are read by frameworks all the same."""
GUARDED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")
MADE: dict[str, dict[str, Any]] = {
    "nothing": {},
    "batches": {"batch_size": 4, "drop_last": True},
    "single samples": {"batch_size": None},
    "a batch sampler": {"batch_sampler": [[0, 1], [2]]},
    "a sampler": {"sampler": [3, 1], "batch_size": 2},
    "workers": {"num_workers": 2, "timeout": 7, "persistent_workers": True, "in_order": False},
    "workers and how far ahead": {"num_workers": 1, "prefetch_factor": 5, "pin_memory": True},
    "a collate_fn": {"collate_fn": list, "pin_memory_device": "cuda"},
}
LENGTHS: dict[str, dict[str, Any]] = {
    "default": {},
    "batches": {"batch_size": 3},
    "whole batches": {"batch_size": 3, "drop_last": True},
    "single samples": {"batch_size": None},
    "shuffled": {"batch_size": 4, "shuffle": True},
    "a list": {"batch_size": 2, "sampler": [4, 4, 4]},
    "a range": {"batch_size": None, "sampler": range(5)},
    "lists of lists": {"batch_sampler": [[0], [1, 2], [3]]},
    "torch's batch sampler": {"batch_sampler": torch.utils.data.BatchSampler(range(7), 2, drop_last=True)},
    "random": {"sampler": torch.utils.data.RandomSampler(range(11), num_samples=20), "batch_size": 6},
    "a sampler without a length": {"sampler": iter([1, 2]), "batch_size": 2},
    "a batch sampler without a length": {"batch_sampler": iter([[1, 2]])},
}


@pytest.mark.parametrize("arguments", MADE.values(), ids=list(MADE))
def test_attributes_are_torchs(both: Any, arguments: dict[str, Any], same: Callable[..., None]) -> None:
    """Every argument is an attribute, with torch's defaults and what it makes of contradictions."""

    def check(kind: Any, data: Any) -> Any:
        loader = kind(data, **arguments)
        named = [getattr(loader, name) for name in (*PUBLIC, *PRIVATE)]
        samplers = [type(loader.sampler).__name__, type(loader.batch_sampler).__name__]
        is_index_sampler = loader._index_sampler is (loader.batch_sampler or loader.sampler)
        return [*named, *samplers, is_index_sampler, loader.dataset is data]

    same(check, both)


def _pickled(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))  # noqa: S301 - made here


@pytest.mark.parametrize("name", GUARDED)
def test_guarded_attributes_stay(both: Any, name: str, same: Callable[..., None]) -> None:
    """What samplers were made of cannot be set once the loader is there; the error has the class' name."""

    def check(kind: Any, data: Any) -> Any:
        class Mine(kind):  # type: ignore[misc] # either loader
            pass

        found = []
        for loader in (kind(data), Mine(data)):
            with pytest.raises(ValueError, match="should not be set") as caught:
                setattr(loader, name, getattr(loader, name))
            found.append(str(caught.value))
        return found

    same(check, both)


def test_what_the_buffers_were_made_by_stays(data: voxload.VolumeDataset) -> None:
    """Buffers and tiers are made once: changing their sizes later is refused in torch's words."""
    loader = voxload.DataLoader(data)
    for name in ("staging", "cache"):
        with pytest.raises(ValueError, match=f"{name} attribute should not be set after DataLoader is initialized"):
            setattr(loader, name, None)


def test_other_attributes_hold_from_the_next_epoch(both: Any, same: Callable[..., None]) -> None:
    """Functions, generators and the number of workers may change between epochs."""

    def check(kind: Any, data: Any) -> Any:
        loader = kind(data, 4, shuffle=True, generator=torch.Generator().manual_seed(1))
        found = [next(iter(loader))]
        under_way = iter(loader)
        loader.collate_fn = list
        found += [next(under_way), next(iter(loader))]
        loader.generator = torch.Generator().manual_seed(2)
        loader.num_workers, loader.prefetch_factor, loader.timeout = 1, 1, 20
        found += [list(loader), loader.generator.get_state()]
        loader.num_workers, loader.timeout = 0, 3
        with pytest.raises(AssertionError):
            iter(loader)
        loader.timeout = 0
        loader.anything = 5
        return [*found, list(loader), loader.anything]

    same(check, both)


def test_a_transform_may_change_between_epochs(data: voxload.VolumeDataset) -> None:
    """What is ours follows the same rule, and what contradicts it is refused when the next epoch begins."""
    loader = voxload.DataLoader(data)
    assert next(iter(loader))[0].dtype == torch.int16
    loader.transform = voxload.transforms.Log1p()
    assert next(iter(loader))[0].dtype == torch.float32
    loader.collate_fn = list
    with pytest.raises(voxload.errors.UsageError, match="collate_fn of your own"):
        iter(loader)


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("arguments", LENGTHS.values(), ids=list(LENGTHS))
def test_lengths_are_those_of_the_samplers(both: Any, arguments: dict[str, Any], same: Callable[..., None]) -> None:
    """A loader and its iterators are as long as what gives the indices."""

    def check(kind: Any, data: Any) -> Any:
        loader = kind(data, **arguments)
        return [len(loader), len(iter(loader))]

    same(check, both)


def test_subclasses_work(both: Any, same: Callable[..., None]) -> None:
    """A loader may be derived from, with arguments of its own, and parametrised by a type."""

    def check(kind: Any, data: Any) -> Any:
        class Halved(kind):  # type: ignore[misc] # either loader
            def __init__(self, data: Any, *args: Any, start: int = 0, **kwargs: Any) -> None:
                super().__init__(data, *args, **kwargs)
                self.start = start

            def __iter__(self) -> Any:
                for place, batch in enumerate(super().__iter__()):
                    if place >= self.start:
                        yield batch

            def __len__(self) -> int:
                return int(super().__len__()) - self.start

        loader = Halved(data, 3, start=2)
        return [isinstance(loader, TorchLoader), len(loader), list(loader), list(kind[int](data))]

    same(check, both)


@pytest.mark.parametrize(
    "arguments",
    [
        {"batch_size": 2, "shuffle": True, "num_workers": 1, "prefetch_factor": 3, "persistent_workers": True},
        {"batch_size": None, "sampler": [2, 1], "timeout": 4.5, "num_workers": 1, "in_order": False},
        {"staging": "2MiB", "transform": voxload.transforms.Log1p(), "cache": voxload.Cache(memory="1MiB")},
    ],
    ids=["shuffled", "single", "ours"],
)
def test_a_loader_is_made_anew_from_its_attributes(data: voxload.VolumeDataset, arguments: dict[str, Any]) -> None:
    """Each argument is an attribute of its name: frameworks make loaders anew with another sampler in this way."""
    loader = voxload.DataLoader(data, **arguments)
    names = [
        name
        for name, one in inspect.signature(voxload.DataLoader.__init__).parameters.items()
        if name not in ("self", "shuffle", "batch_sampler") and one.kind is not one.VAR_KEYWORD
    ]
    again = voxload.DataLoader(**{name: getattr(loader, name) for name in names})
    for name in names:
        assert getattr(again, name) is getattr(loader, name), name
    for given, value in arguments.items():
        assert given == "shuffle" or getattr(again, given) == value
    torch.manual_seed(4)
    first = [batch[0] for batch in loader]
    torch.manual_seed(4)
    assert all(torch.equal(one, batch[0]) for one, batch in zip(first, again, strict=True))
    for each in (loader, again):
        each.close()


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, _pickled])
def test_loaders_are_copied(both: Any, clone: Callable[[Any], Any], same: Callable[..., None]) -> None:
    """A copy loads what the original does, also when that is gone; its guards hold."""

    def check(kind: Any, data: Any) -> Any:
        loader = kind(data, 4)
        found = [list(loader)]
        loader = clone(loader)
        with pytest.raises(ValueError, match="batch_size attribute"):
            loader.batch_size = 3
        return [*found, list(loader), len(loader)]

    same(check, both)


@pytest.mark.few_cases(2)
def test_a_loader_with_a_running_iterator_is_not_pickled(both: Any, same: Callable[..., None]) -> None:
    """An iterator that persists goes with its loader, and cannot be pickled."""

    def check(kind: Any, data: Any) -> Any:
        loader = kind(data, 4, num_workers=1, persistent_workers=True)
        next(iter(loader))
        with pytest.raises(NotImplementedError):
            pickle.dumps(loader)

    same(check, both)


def test_a_group_sampler_is_copied(data: voxload.VolumeDataset) -> None:
    """Copies and pickles of a sampler draw the same, whether it has looked its ranks up or not."""
    grid = voxload.ProcessGrid((2, 1, 1), 4, 3)
    settled = GroupSampler(data, grid, shuffle=True, seed=2)
    expected = list(GroupSampler(data, grid, shuffle=True, seed=2))
    assert [list(clone(settled)) for clone in (copy.copy, copy.deepcopy, _pickled)] == [expected] * 3
    open_ = GroupSampler(data, shuffle=True, seed=2)
    alone = list(GroupSampler(data, voxload.ProcessGrid(), shuffle=True, seed=2))
    for other in (copy.copy(open_), copy.deepcopy(open_), _pickled(open_), open_):
        assert "rank" not in vars(other)
        other.set_epoch(0)
        assert (list(other), len(other), other.rank) == (alone, len(data), 0)
    with pytest.raises(AttributeError, match="no attribute 'world'"):
        _ = settled.world
