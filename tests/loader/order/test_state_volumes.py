"""Resuming over a VolumeDataset: with other groups, grids, threads and batches, reading nothing that lies before."""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader as TorchLoader

import voxload
from voxload.errors import DataError, UsageError
from voxload.readers.protocol import ReadCost, Volume

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is not initialised")  # one process plays all ranks

SAMPLES = 11
SPATIAL = ((1, 1, 1), (2, 1, 1), (1, 2, 2))


class Recording(voxload.VolumeDataset):
    """Knows which samples it was asked for, and in which epoch."""

    def __init__(self, folder: Path, grid: voxload.ProcessGrid | None = None, **more: Any) -> None:
        super().__init__(f"{folder}/*.h5", fields={"x": "full"}, axes="DHWC", targets="unitPar", grid=grid, **more)
        self.reads: list[int] = []
        self.numbers = {tuple(self.read_targets(index).tolist()): index for index in range(len(self))}  # type: ignore[union-attr] # there are targets

    def read_into(self, index: int, volumes: Sequence[Volume], **which: int | None) -> ReadCost:
        """Note the sample, then read it."""
        self.reads.append(index)
        return super().read_into(index, volumes, **which)

    def indices(self, batches: Any, count: int | None = None) -> list[list[int]]:
        """Return the samples of each batch, by their targets."""
        found = itertools.islice(batches, count)
        return [[self.numbers[tuple(row)] for row in batch[-1].tolist()] for batch in found]


def _grid(groups: int, group: int, spatial: tuple[int, int, int] = (1, 1, 1)) -> voxload.ProcessGrid:
    size = voxload.ProcessGrid(spatial=spatial, world_size=spatial[0] * spatial[1] * spatial[2]).group_size
    return voxload.ProcessGrid(spatial=spatial, world_size=groups * size, rank=group * size)


def _in_turn(groups: list[list[int]]) -> list[int]:
    """Return samples in the order of all groups; they have equally many."""
    return [index for step in zip(*groups, strict=True) for index in step]


def _flat(batches: list[list[int]]) -> list[int]:
    return [index for batch in batches for index in batch]


@pytest.fixture(scope="module")
def ranks(folder: Path) -> Callable[..., Recording]:
    """Return a maker of data sets, each made once: their files stay open."""
    made: dict[Any, Recording] = {}

    def of(groups: int, group: int, spatial: tuple[int, int, int] = (1, 1, 1)) -> Recording:
        key = (groups, group, spatial)
        if key not in made:
            made[key] = Recording(folder, _grid(groups, group, spatial))
        return made[key]

    return of


@pytest.mark.long
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    groups=st.tuples(*[st.integers(1, 3)] * 3),
    spatial=st.tuples(*[st.sampled_from(SPATIAL)] * 3),
    batch=st.tuples(*[st.integers(1, 4)] * 3),
    workers=st.tuples(*[st.integers(0, 3)] * 3),
    steps=st.tuples(st.integers(0, 4), st.integers(0, 2)),
    epoch=st.integers(0, 1),
    shuffle=st.booleans(),
    seed=st.integers(0, 9),
    is_seeded=st.booleans(),
)
def test_any_number_of_groups_goes_on(  # noqa: PLR0917 - what a job may change when it is resumed
    ranks: Callable[..., Recording],
    groups: tuple[int, int, int],
    spatial: tuple[tuple[int, int, int], ...],
    batch: tuple[int, int, int],
    workers: tuple[int, int, int],
    steps: tuple[int, int],
    epoch: int,
    shuffle: bool,
    seed: int,
    is_seeded: bool,
) -> None:
    """Three jobs of different shape share one epoch: its order is continued, and padded by less than one round.

    One group is torch's own default order, several are GroupSampler's. Each rank reads its own samples only.
    """
    state: dict[str, Any] = {}
    order: list[int] = []
    for job in range(3):
        parts: list[list[int]] = []
        states = []
        left = SAMPLES - len(order)
        count = min(steps[job], ceil(ceil(left / groups[job]) / batch[job])) if job < 2 else None
        for group in range(groups[job]):
            data = ranks(groups[job], group, spatial[job])
            torch.default_generator.manual_seed(seed)
            generator = torch.Generator().manual_seed(seed) if is_seeded else None
            loader = voxload.DataLoader(
                data, batch[job], shuffle=shuffle, num_workers=workers[job], generator=generator
            )
            if job == 0:
                for _ in range(epoch):
                    data.indices(loader)
            else:
                loader.load_state_dict(state)
            data.reads.clear()
            batches = iter(loader)
            found = _flat(data.indices(batches, count))
            states.append(loader.state_dict())
            del batches
            parts.append(found)
            if job == 2:
                assert not Counter(found) - Counter(data.reads)
        assert all({**one, "order": None} == {**states[0], "order": None} for one in states)
        state = json.loads(json.dumps(states[0]))
        assert len(json.dumps(state)) < 1024
        order += _in_turn(parts)[:left]
        if job < 2:
            assert state["position"] == len(order)
            assert state["epoch"] == epoch
    assert sorted(order) == list(range(SAMPLES))
    if not shuffle:
        assert order == list(range(SAMPLES))
    elif groups[0] > 1:
        drawn = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed((seed if is_seeded else 0) + epoch))
        assert order == drawn.tolist()


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("groups", [1, 2])
def test_nothing_is_read_for_what_was_delivered(folder: Path, groups: int) -> None:
    """A resumed epoch reads what is left and, beyond it, at most what the next epoch begins with."""
    data = Recording(folder, _grid(groups, groups - 1))

    def made() -> voxload.DataLoader:  # one thread reads in the order of the sampler
        return voxload.DataLoader(data, 1, shuffle=True, generator=torch.Generator().manual_seed(2), num_workers=1)

    first = made()
    whole = data.indices(first)
    first.close()  # a loader that goes waits for no read, which would be counted below
    for done in range(len(whole) + 1):
        loader = made()
        batches = iter(loader)
        data.indices(batches, done)
        state = loader.state_dict()
        loader.close()
        del batches
        data.reads.clear()
        resumed = made()
        resumed.load_state_dict(state)
        left = len(whole) - done
        assert data.indices(resumed) == whole[done:]
        following = data.indices(resumed)
        resumed.close()
        # All of the rest once, then the whole of the next epoch, then what was read ahead of a third one.
        assert data.reads[:left] == _flat(whole[done:])
        assert data.reads[left : left + len(whole)] == _flat(following)
    data.close()


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    groups=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    batch=st.tuples(*[st.integers(1, 4)] * 2),
    k=st.integers(0, 4),
)
def test_what_is_dropped_is_less_than_a_round(
    ranks: Callable[..., Recording], groups: tuple[int, int], batch: tuple[int, int], k: int
) -> None:
    """With drop_last nothing is repeated, and what is left out at the end is less than one batch of all groups."""
    order: list[int] = []
    state: dict[str, Any] = {}
    steps = min(k, SAMPLES // groups[0] // batch[0])
    for job, (many, size) in enumerate(zip(groups, batch, strict=True)):
        parts = []
        for group in range(many):
            data = ranks(many, group)
            loader = voxload.DataLoader(data, size, shuffle=True, drop_last=True, generator=torch.Generator())
            loader.load_state_dict(state)
            batches = iter(loader)
            parts.append(_flat(data.indices(batches, steps if job == 0 else None)))
            saved = loader.state_dict()
        state = saved
        order += _in_turn(parts)
    assert len(set(order)) == len(order)
    assert SAMPLES - len(order) < groups[1] * batch[1]


@pytest.mark.long
def test_epochs_behind_a_resumed_one_are_the_same(folder: Path) -> None:
    """Without set_epoch the epochs go on counting, on one group and on several, as without the break."""
    for groups in (1, 3):
        data = Recording(folder, _grid(groups, 0))

        def made(data: Recording = data) -> voxload.DataLoader:
            return voxload.DataLoader(data, 2, shuffle=True, generator=torch.Generator().manual_seed(1))

        whole = made()
        epochs = [data.indices(whole) for _ in range(4)]
        loader = made()
        data.indices(loader)
        data.indices(iter(loader), 1)
        resumed = made()
        resumed.load_state_dict(loader.state_dict())
        assert [data.indices(resumed) for _ in range(3)] == [epochs[1][1:], *epochs[2:]]
        assert resumed.state_dict()["epoch"] == 4
        data.close()


def test_a_sample_that_cannot_be_read_counts(folder: Path, tmp_path: Path) -> None:
    """The iterator goes on behind a broken sample, and so does who resumes."""
    for index in range(4):
        (tmp_path / f"u{index}.h5").write_bytes((folder / f"u{index:02}.h5").read_bytes())
    whole = (tmp_path / "u1.h5").read_bytes()
    (tmp_path / "u1.h5").write_bytes(whole[: len(whole) // 2])
    data = voxload.VolumeDataset(f"{tmp_path}/*.h5", fields={"x": "full"}, axes="DHWC")
    loader = voxload.DataLoader(data, 1)
    batches = iter(loader)
    next(batches)
    with pytest.raises(DataError, match=r"u1\.h5"):
        next(batches)
    assert loader.state_dict()["position"] == 2
    resumed = voxload.DataLoader(data, 1)
    resumed.load_state_dict(loader.state_dict())
    assert torch.equal(next(iter(resumed))[0][0], data[2][0])
    data.close()


@pytest.mark.few_cases(4)
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("is_seeded", [False, True])
@pytest.mark.parametrize("done", [0, 1, 3])
def test_a_cache_goes_on_too(folder: Path, tmp_path: Path, groups: int, is_seeded: bool, done: int) -> None:
    """With a cache, which foresees orders, a resumed epoch is the rest of it, and those behind are whole."""

    def made() -> tuple[Recording, voxload.DataLoader]:
        data = Recording(folder, _grid(groups, 0))
        generator = torch.Generator().manual_seed(3) if is_seeded else None
        cache = voxload.Cache(memory="1MiB", disk=tmp_path, disk_size="1MiB")
        return data, voxload.DataLoader(data, 2, shuffle=True, generator=generator, cache=cache)

    torch.default_generator.manual_seed(1)
    data, loader = made()
    theirs = TorchLoader(data, 2, sampler=loader.sampler, generator=loader.generator)
    epochs = [data.indices(theirs) for _ in range(3)]
    data.close()
    torch.default_generator.manual_seed(1)
    data, loader = made()
    assert data.indices(loader) == epochs[0]
    batches = iter(loader)
    assert data.indices(batches, done) == epochs[1][:done]
    state = loader.state_dict()
    del batches
    loader.close()
    data.close()
    data, loader = made()
    loader.load_state_dict(state)
    rest = data.indices(loader)
    if done or is_seeded or groups > 1:
        assert rest == epochs[1][done:]
    following = data.indices(loader)
    assert sorted({*_flat(following)}) == (list(range(SAMPLES)) if groups == 1 else sorted(_flat(epochs[2])))
    if is_seeded or groups > 1:
        assert following == epochs[2]
    loader.close()
    data.close()


@pytest.mark.long
def test_the_number_of_an_epoch_reaches_the_reader(folder: Path) -> None:
    """The sampler's own number, else the count, which a state restores, else what set_epoch says."""
    for groups in (1, 2):
        data = Recording(folder, _grid(groups, 0))
        loader = voxload.DataLoader(data, 4, shuffle=True)
        numbers = []
        for chosen in (None, None, 7, None):
            if chosen is not None:
                loader.set_epoch(chosen)
            data.indices(loader, 1)
            numbers.append(loader._pipeline.epoch)  # type: ignore[union-attr] # there is one
        assert numbers == [0, 1, 7, 8]
        resumed = voxload.DataLoader(data, 4, shuffle=True)
        resumed.load_state_dict(loader.state_dict())
        for expected in (8, 9):
            data.indices(resumed)
            assert resumed._pipeline.epoch == expected  # type: ignore[union-attr] # there is one
        data.close()


def test_a_state_of_other_volumes_is_refused(folder: Path) -> None:
    """Samples, fields and targets must be the same; grid, halo and boundary may differ."""

    def data(**changes: Any) -> voxload.VolumeDataset:
        arguments: dict[str, Any] = {"fields": {"x": "full"}, "axes": "DHWC", "targets": "unitPar"}
        return voxload.VolumeDataset(f"{folder}/*.h5", **{**arguments, **changes})

    state = voxload.DataLoader(data(), 2).state_dict()
    others = (
        data(fields={"y": "full"}),
        data(targets=None),
        voxload.VolumeDataset(f"{folder}/u0*.h5", fields={"x": "full"}, axes="DHWC", targets="unitPar"),
    )
    for other in others:
        with pytest.raises(UsageError, match="data of the loader's state"):
            voxload.DataLoader(other, 2).load_state_dict(state)
    voxload.DataLoader(data(halo=1, boundary="periodic", grid=_grid(2, 1, (2, 1, 1))), 2).load_state_dict(state)


@pytest.mark.parametrize(
    "words",
    [{}, {"cache": voxload.Cache(memory="1MiB")}, {"readers": "process"}],
    ids=["threads", "cache", "process"],
)
def test_files_whose_names_are_no_utf_8(tmp_path: Path, words: dict[str, Any]) -> None:
    """They are read, kept and gone on with as any other."""
    for number, name in enumerate((b"a\xff.npy", b"b\xc3.npy", b"c.npy")):
        with open(os.fsencode(tmp_path) + b"/" + name, "wb") as file:  # noqa: PTH123 - a path is text
            np.save(file, np.full((4, 4, 4), number, "<i2"))
    data = voxload.VolumeDataset(f"{tmp_path}/*.npy")
    with closing(voxload.DataLoader(data, shuffle=True, generator=torch.Generator().manual_seed(1), **words)) as loader:
        for _ in range(2):
            assert sorted(int(block.max()) for (block,) in loader) == [0, 1, 2]
        state = json.loads(json.dumps(loader.state_dict()))
        coming = [int(block.max()) for (block,) in loader]
    again = voxload.DataLoader(data, shuffle=True, generator=torch.Generator().manual_seed(1), **words)
    with closing(again):
        again.load_state_dict(state)
        assert [int(block.max()) for (block,) in again] == coming
    data.close()
