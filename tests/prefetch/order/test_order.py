"""OrderSource: what it tells of coming epochs is what loaders then draw, and telling changes nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, SequentialSampler, SubsetRandomSampler
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import WeightedRandomSampler as Weighted

import voxload
from voxload.grid import ProcessGrid
from voxload.loader.sampler import GroupSampler
from voxload.prefetch.line import EpochOrder
from voxload.prefetch.order.batches import pack
from voxload.prefetch.order.source import OrderSource

EPOCHS, AHEAD = 3, 4
MOST = 9
"""Samples of the stored data set."""

SAMPLERS: dict[str, Callable[[int, int, torch.Generator], Any]] = {
    "sequential": lambda n, _, __: SequentialSampler(range(n)),
    "random": lambda n, _, g: RandomSampler(range(n), generator=g),
    "several times": lambda n, draws, g: RandomSampler(range(n), num_samples=draws, generator=g),
    "replaced": lambda n, draws, g: RandomSampler(range(n), replacement=True, num_samples=draws, generator=g),
    "subset": lambda n, _, g: SubsetRandomSampler(range(-1, n - 1), generator=g),
    "weighted": lambda n, draws, g: Weighted([1.0 + i for i in range(n)], draws, generator=g),
    "weighted once": lambda n, _, g: Weighted([1.0 + i for i in range(n)], n, replacement=False, generator=g),
    "list": lambda n, _, __: [0, n - 1, 0, *range(n)],
}
"""By name, from samples, draws and generator."""


@dataclass(frozen=True)
class Case:
    """A loader, as its arguments; the same case makes equal loaders."""

    sampler: str
    samples: int
    draws: int
    batch: int | None
    drop_last: bool
    seed: int
    is_shared: bool
    """Whether the loader has the sampler's generator, too."""
    is_wrapped: bool
    """Whether the batch sampler is the caller's."""

    def loader(self, kind: type[TorchLoader[Any]], data: Any, **more: Any) -> TorchLoader[Any]:
        """Return a new loader."""
        generator = torch.Generator().manual_seed(self.seed)
        arguments: dict[str, Any] = {"generator": generator if self.is_shared else None, **more}
        sampler = SAMPLERS[self.sampler](self.samples, self.draws, generator)
        if self.batch is None:
            arguments.update(sampler=sampler, batch_size=None)
        elif self.is_wrapped:
            arguments["batch_sampler"] = BatchSampler(sampler, self.batch, self.drop_last)
        else:
            arguments.update(sampler=sampler, batch_size=self.batch, drop_last=self.drop_last)
        return kind(data, **arguments)


cases = st.builds(
    Case,
    sampler=st.sampled_from(sorted(SAMPLERS)),
    samples=st.integers(1, MOST),
    draws=st.integers(1, 70),  # torch draws 32 at a time
    batch=st.none() | st.integers(1, 12),
    drop_last=st.booleans(),
    seed=st.integers(0, 2**40),
    is_shared=st.booleans(),
    is_wrapped=st.booleans(),
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return files of one small cube each, whose voxels are its index."""
    folder = tmp_path_factory.mktemp("numbered")
    for index in range(MOST):
        with h5py.File(folder / f"{index}.h5", "w") as file:
            file["full"] = np.full((2, 2, 2), index, "<i2")
    return sorted(map(str, Path(folder).iterdir()))


def _numbered(files: list[str], **more: Any) -> voxload.VolumeDataset:
    return voxload.VolumeDataset(files, fields={"x": "full"}, axes="DHW", **more)


def _drawn(loader: TorchLoader[Any]) -> list[list[int]]:
    """Iterate over one epoch and return the sample indices of each batch."""
    batches = []
    for batch in loader:
        items = batch[0] if isinstance(batch, list | tuple) else torch.as_tensor(batch)
        if items.ndim > 2:  # blocks, whose voxels are the index
            items = items[..., 0, 0, 0]
        batches.append(items.reshape(-1).tolist())
    return batches


def _attributes(value: Any) -> Any:
    if isinstance(value, torch.Generator):
        return value.get_state().tolist()
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, torch.utils.data.Sampler):
        return {name: _attributes(part) for name, part in vars(value).items()}
    return value


def _everything(loader: TorchLoader[Any]) -> list[Any]:
    """Return the state of all that telling might change."""
    numbers = np.random.get_state()  # noqa: NPY002 - the global one is the one to watch
    assert isinstance(numbers, tuple)
    global_states = [torch.get_rng_state().tolist(), random.getstate(), numbers[1].tolist(), numbers[2]]
    return global_states + [_attributes(part) for part in (loader.generator, loader.sampler, loader.batch_sampler)]


def _batches(packed: Any) -> list[list[int]]:
    return [[index for index in step if index >= 0] for step in packed.tolist()]


def _check(told: TorchLoader[Any], plain: TorchLoader[Any], samples: int) -> None:
    """Compare what is told of one loader at the start of each epoch with what it draws, and with an untold one."""
    expected = [_drawn(plain) for _ in range(EPOCHS)]
    before = _everything(told)
    source = OrderSource(told, ProcessGrid())
    foretold = list(source.own_ahead(AHEAD))
    for epoch in range(EPOCHS):
        assert source.begin_epoch()
        own, orders = source.own_ahead(AHEAD), source.ahead(AHEAD)
        assert _everything(told) == before
        assert [order.epoch for order in orders] == list(range(epoch, epoch + AHEAD))
        assert all(np.array_equal(order.samples[0], mine) for order, mine in zip(orders, own, strict=True))
        # Four epochs are told each time: each is the same as the times before.
        assert all(np.array_equal(old, new) for old, new in zip(foretold[epoch:], own, strict=False))
        foretold[epoch:] = own
        drawn = _drawn(told)
        before = _everything(told)
        assert drawn == expected[epoch]
        assert source.observe(drawn)
        assert _batches(own[0]) == [[index % samples for index in batch] for batch in drawn]
        assert source.horizon.epochs is None


@given(case=cases)
def test_orders_are_torchs(case: Case) -> None:
    """For each sampler that can be replayed, torch's loader draws what was told, epochs ahead."""
    data = list(range(case.samples))  # a list of numbers is its own index
    _check(case.loader(TorchLoader, data), case.loader(TorchLoader, data), case.samples)


@pytest.mark.long
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)  # the files do not change
@given(case=cases, workers=st.integers(0, 2), is_persistent=st.booleans())
def test_orders_are_voxloads(files: list[str], case: Case, workers: int, is_persistent: bool) -> None:
    """So does voxload's, whether it keeps its iterator or not: one that is kept draws no second seed."""
    more: dict[str, Any] = {"num_workers": workers, "persistent_workers": is_persistent and workers > 0}
    data = _numbered(files[: case.samples])
    try:
        _check(case.loader(voxload.DataLoader, data, **more), case.loader(voxload.DataLoader, data, **more), len(data))
    finally:
        data.close()


def test_kept_workers_of_torchs_own_draw_one_seed() -> None:
    """With torch's worker processes, too, the seed is drawn once where they are kept."""
    case = Case("random", 7, 7, 2, drop_last=False, seed=3, is_shared=True, is_wrapped=False)
    loader = case.loader(TorchLoader, range(7), num_workers=1, persistent_workers=True)
    source = OrderSource(loader, ProcessGrid())
    foretold = source.own_ahead(3)
    for epoch in range(3):
        assert source.begin_epoch()
        assert np.array_equal(foretold[epoch], pack(_drawn(loader), 7))


@dataclass(frozen=True)
class Divided:
    """Loaders of several groups over one data set; a group's is the same whenever it is made."""

    samples: int
    groups: int
    batch: int | None
    drops: tuple[bool, bool]
    """Whether the sampler, and the loader, leaves out what does not fill a round."""
    shuffle: bool
    seed: int
    is_advancing: bool
    """Whether the sampler counts epochs by itself."""
    calls: tuple[int, int] | None
    """First epoch and step of the numbers given to set_epoch; None where it is not called."""

    def loader(self, group: int) -> TorchLoader[Any]:
        """Return a new loader."""
        data: Any = range(self.samples)
        how: dict[str, Any] = {"shuffle": self.shuffle, "seed": self.seed, "drop_last": self.drops[0]}
        sampler: DistributedSampler[Any]
        if self.is_advancing:
            sampler = GroupSampler(data, ProcessGrid(world_size=self.groups, rank=group), **how)
        else:
            sampler = DistributedSampler(data, self.groups, group, **how)
        more: dict[str, Any] = {} if self.batch is None else {"drop_last": self.drops[1]}
        return TorchLoader(data, batch_size=self.batch, sampler=sampler, **more)

    def set_epoch(self, loader: Any, epoch: int) -> None:
        """Call it as this case's loop does."""
        if self.calls is not None:
            loader.sampler.set_epoch(self.calls[0] + epoch * self.calls[1])

    @property
    def is_as_guessed(self) -> bool:
        """Whether the number goes up by 1 from the beginning, or does not matter."""
        return not self.shuffle or (self.calls[1] == 1 if self.calls else self.is_advancing)


divided = st.builds(
    Divided,
    samples=st.integers(0, 40),
    groups=st.integers(1, 6),
    batch=st.none() | st.integers(1, 5),
    drops=st.tuples(st.booleans(), st.booleans()),
    shuffle=st.booleans(),
    seed=st.integers(0, 2**20),
    is_advancing=st.booleans(),
    calls=st.none() | st.tuples(st.integers(0, 9), st.integers(0, 3)),
)


@given(case=divided, group=st.integers(0, 5))
def test_all_groups_are_told_at_once(case: Divided, group: int) -> None:
    """Each group knows all groups' orders, set_epoch or not; from the second epoch on whatever its steps are."""
    group %= case.groups
    loaders = [case.loader(rank) for rank in range(case.groups)]
    grid = ProcessGrid(world_size=case.groups, rank=group)
    source = OrderSource(loaders[group], grid, advancing=(GroupSampler,))
    foretold: tuple[EpochOrder, ...] = ()
    for epoch in range(EPOCHS + 1):
        for loader in loaders:
            case.set_epoch(loader, epoch)
        before = _everything(loaders[group])
        is_learning = epoch == 1 and not case.is_as_guessed
        assert source.begin_epoch() != is_learning
        orders = source.ahead(AHEAD)
        assert _everything(loaders[group]) == before
        foretold = orders if epoch == 0 or is_learning else foretold
        real = [_drawn(loader) for loader in loaders]
        for order in (orders[0], foretold[epoch - foretold[0].epoch]):
            assert order.epoch == epoch
            assert order.samples.shape == (case.groups, len(real[0]), case.batch or 1)
            assert [_batches(row) for row in order.samples] == real
        assert np.array_equal(source.own_ahead(1)[0], orders[0].samples[group])
        assert source.observe(real[group])
    assert source.horizon.epochs is None
    assert source.horizon.is_of_line


def test_voxloads_own_sampler_is_told(files: list[str]) -> None:
    """Without a sampler of the caller's the loader divides among groups: blocks of one sample have one order."""
    grids = [ProcessGrid((2, 1, 1), 6, rank) for rank in range(6)]
    sets = [_numbered(files, grid=grid) for grid in grids]
    loaders = [
        voxload.DataLoader(data, 2, shuffle=True, generator=torch.Generator().manual_seed(8), num_workers=1)
        for data in sets
    ]
    source = OrderSource(loaders[3], grids[3], advancing=(GroupSampler,))
    foretold = source.ahead(2)
    for order in foretold:
        assert source.begin_epoch()
        real = [list(loader._index_sampler) for loader in loaders]  # the blocks would need a process each
        for rank, drawn in enumerate(real):
            assert np.array_equal(order.samples[grids[rank].group], pack(drawn, MOST))
    for data in sets:
        data.close()


@pytest.fixture
def permutations(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count torch's permutations by their length."""
    lengths: list[int] = []
    permute = torch.randperm

    def counted(length: int, **more: Any) -> torch.Tensor:
        lengths.append(length)
        return permute(length, **more)

    monkeypatch.setattr(torch, "randperm", counted)
    return lengths


def test_one_permutation_serves_all_groups_and_is_made_once(permutations: list[int]) -> None:
    """At 2,048 groups the order of an epoch takes one permutation, and asking again takes none."""
    data: Any = range(262_144)
    grid = ProcessGrid(world_size=2048, rank=77)
    loader = TorchLoader(data, 16, sampler=GroupSampler(data, grid, shuffle=True))
    source = OrderSource(loader, grid, advancing=(GroupSampler,))
    source.begin_epoch()
    for _ in range(2):
        assert source.ahead(2)[1].samples.shape == (2048, 8, 16)
    assert [length for length in permutations if length] == [262_144, 262_144]
    orders = source.ahead(1)[0].samples
    assert np.array_equal(np.sort(orders.reshape(-1)), np.arange(262_144))
    assert orders[77].reshape(-1).tolist() == list(loader.sampler)
