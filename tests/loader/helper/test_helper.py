"""readers="process": the stream of threads, read elsewhere; a lost process is made up for once, and then named."""

from __future__ import annotations

import os
import signal
import sys
import types
import warnings
import weakref
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

import voxload
from tests.support import processes
from tests.support.awkward import Failing, Telling, Waiting
from tests.support.settled import settle
from voxload.errors import DataError, InternalError, UsageError
from voxload.loader.helper.team import ReaderTeam
from voxload.loader.reading.staging import Slot, StagingRing
from voxload.readers.settings import ReaderSettings

WORDS: dict[str, Any] = {"fields": {"x": "full"}, "axes": "DHWC", "targets": "unitPar"}


def _seeded(seed: int = 7) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _team(loader: voxload.DataLoader) -> ReaderTeam:
    """Return a loader's other process, once it takes orders; an iterator has begun."""
    team = loader._pipeline._ahead.reads._others  # type: ignore[union-attr]
    assert isinstance(team, ReaderTeam)
    assert team._state is not None
    assert team._state.ready.wait(processes.LIMIT)
    return team


def _read(team: ReaderTeam) -> int:
    """Return how many batches the process was given."""
    return team._numbers


def _pid(team: ReaderTeam) -> int:
    state = team._state
    assert state is not None
    with state.lock:
        assert state.process is not None
        return state.process.pid


def _equal(ours: list[Any], theirs: list[Any]) -> bool:
    return len(ours) == len(theirs) and all(
        torch.equal(a, b) for own, other in zip(ours, theirs, strict=True) for a, b in zip(own, other, strict=True)
    )


def _copies(batches: Any) -> list[Any]:
    return [[part.clone() for part in batch] for batch in batches]


@pytest.fixture
def loader(data: voxload.VolumeDataset) -> Iterator[voxload.DataLoader]:
    """Yield a shuffled loader whose process takes orders."""
    made = voxload.DataLoader(data, 2, shuffle=True, generator=_seeded(), num_workers=2, readers="process")
    iter(made)
    _team(made)
    yield made
    made.close()


@pytest.fixture
def slots(monkeypatch: pytest.MonkeyPatch) -> weakref.WeakKeyDictionary[StagingRing, weakref.WeakSet[Slot]]:
    """Return the slots of the rings that are made from now on."""
    made: weakref.WeakKeyDictionary[StagingRing, weakref.WeakSet[Slot]] = weakref.WeakKeyDictionary()
    new = StagingRing._new

    def counted(ring: StagingRing) -> Slot:
        slot = new(ring)
        made.setdefault(ring, weakref.WeakSet()).add(slot)
        return slot

    monkeypatch.setattr(StagingRing, "_new", counted)
    return made


@pytest.mark.usefixtures("no_leaks")
def test_the_stream_is_that_of_threads(
    slots: weakref.WeakKeyDictionary[StagingRing, weakref.WeakSet[Slot]],
    data: voxload.VolumeDataset,
    loader: voxload.DataLoader,
) -> None:
    """Whole epochs and left ones, targets and all; no slot beyond the ring's stays, and nothing is left behind."""
    theirs = voxload.DataLoader(data, 2, shuffle=True, generator=_seeded(), num_workers=2)
    iter(theirs)
    begun = _read(_team(loader))
    for most in (6, 2, 6, 0, 6):
        pairs = []
        for each in (loader, theirs):
            batches, found = iter(each), []
            for _ in range(most):
                found.extend(_copies([next(batches)]))
            del batches
            pairs.append(found)
        assert _equal(*pairs)
    # A thread that had not let go of a slot when an epoch was left costs one more, until one comes back (rule 1).
    assert len(slots) == 2
    for ring, made in slots.items():
        assert ring._surplus <= 1
        assert len(made) <= ring.slots + ring._surplus
    assert _read(_team(loader)) > begun
    stats = loader.stats()
    assert (stats.batches, stats.bytes_needed) == (theirs.stats().batches, theirs.stats().bytes_needed)
    assert stats.bytes_read == theirs.stats().bytes_read
    theirs.close()


@pytest.mark.long
def test_it_goes_on_from_a_state(data: voxload.VolumeDataset, loader: voxload.DataLoader) -> None:
    """One that threads saved, half-way."""
    theirs = voxload.DataLoader(data, 2, shuffle=True, generator=_seeded(), num_workers=2)
    batches = iter(theirs)
    next(batches)
    loader.load_state_dict(theirs.state_dict())
    assert _equal(_copies(loader), _copies(batches))
    theirs.close()


@pytest.mark.long
def test_what_reading_raises_is_raised_in_its_place(folder: Path) -> None:
    """With its words; one of the user's own tells where it was raised, one that cannot be sent what it said."""
    data = Failing(f"{folder}/*.h5", **WORDS)
    loader = voxload.DataLoader(data, 1, num_workers=1, readers="process")
    batches = iter(loader)
    _team(loader)
    next(batches)
    with pytest.raises(DataError, match=r"^sample 1: found damage; write it again$"):
        next(batches)
    with pytest.raises(KeyError, match="sample 2") as raised:
        next(batches)
    assert any("raised in the reader process" in note and "read_into" in note for note in raised.value.__notes__)
    with pytest.raises(InternalError, match=r"KeptError in the reader process: found sample 3"):
        next(batches)
    assert len(list(batches)) == 7
    loader.close()


@pytest.mark.long
def test_the_other_process_reads_alike(folder: Path) -> None:
    """With as many threads a read, past the page cache or not, and keeping as much, as this one when it began."""
    data = Telling(f"{folder}/*.h5", fields={"x": "full"}, axes="DHWC")
    before = ReaderSettings.current()
    try:
        ReaderSettings(1, is_direct=False, chunk_cache=2**20, kept_chunks=2**21).apply()
        loader = voxload.DataLoader(data, 1, num_workers=1, readers="process")
        iter(loader)
        _team(loader)
    finally:
        before.apply()
    told = [batch[1][0].tolist() for batch in loader]
    assert told[-1] == [_pid(_team(loader)), 1, 0, 2**20, 2**21]
    assert before == ReaderSettings.current()
    loader.close()


@pytest.mark.long
def test_samples_that_do_not_fit_are_read_here(tmp_path: Path) -> None:
    """Others than the first one's shape, and batches larger than a slot."""
    rng = np.random.default_rng(3)
    for place, edge in enumerate((4, 4, 6, 4)):
        with h5py.File(tmp_path / f"{place}.h5", "w") as file:
            file["x"] = rng.integers(0, 9, (edge, 4, 4)).astype("<i2")
    settle(tmp_path)
    data = voxload.VolumeDataset(f"{tmp_path}/*.h5", fields={"x": "x"})
    loader = voxload.DataLoader(data, 1, readers="process")
    for _ in range(2):
        found = [batch[0].clone() for batch in loader]
        assert [tuple(one.shape[2:]) for one in found] == [(4, 4, 4), (4, 4, 4), (6, 4, 4), (4, 4, 4)]
        for place, one in enumerate(found):
            with h5py.File(tmp_path / f"{place}.h5") as file:
                assert np.array_equal(one[0, 0].numpy(), file["x"][()])
        _team(loader)
    loader.close()
    large = voxload.DataLoader(data, batch_sampler=[[0, 1], [1, 3, 0]], readers="process")
    iter(large)
    _team(large)
    assert [len(batch[0]) for batch in large] == [2, 3]
    large.close()


@pytest.mark.long
@pytest.mark.usefixtures("no_leaks")
def test_a_killed_process_is_begun_again_once(folder: Path, tmp_path: Path) -> None:
    """What it was reading is read all the same, and the loop is warned; the second loss names the process."""
    os.mkfifo(tmp_path / "begun")
    os.mkfifo(tmp_path / "go")
    data = Waiting(f"{folder}/*.h5", **WORDS)
    data.pipes = tmp_path
    loader = voxload.DataLoader(data, 1, sampler=[0, 1, 2], num_workers=1, readers="process")

    def begun() -> int:
        return int((tmp_path / "begun").read_text())

    def epoch() -> list[Any]:
        """Return an epoch of which sample 1 is under way; behind its first batch the process takes orders."""
        batches = iter(loader)
        found = _copies([next(batches)])
        if not expected:
            begun()
        _team(loader)
        (tmp_path / "go").write_text("")
        return [*found, *_copies(batches)]

    expected: list[Any] = []
    expected = epoch()
    lost = begun()  # what comes is read behind the end of an epoch
    assert lost == _pid(_team(loader))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        os.kill(lost, signal.SIGKILL)
        assert begun() == os.getpid()
        assert _equal(epoch(), expected)
    assert [f"reader process {lost}: ended by signal 9 (SIGKILL)" in str(one.message) for one in told] == [True]
    begun()
    assert _equal(epoch(), expected)
    again = begun()
    assert again == _pid(_team(loader)) != lost
    last = iter(loader)
    next(last)
    os.kill(again, signal.SIGKILL)
    for _ in range(2):
        with pytest.raises(InternalError, match=rf"reader process {again}: found ended by signal 9 \(SIGKILL\)"):
            next(last)
    loader.close()
    data.close()


@pytest.mark.usefixtures("no_leaks")
def test_who_waits_when_the_loader_is_closed_is_told(folder: Path, tmp_path: Path) -> None:
    """As of threads: a batch that nobody will read any more is an error, and not waited for."""
    os.mkfifo(tmp_path / "begun")
    os.mkfifo(tmp_path / "go")
    data = Waiting(f"{folder}/*.h5", **WORDS)
    data.pipes = tmp_path
    loader = voxload.DataLoader(data, 1, sampler=[0, 0, 0, 0, 0, 1, 2], num_workers=1, readers="process")
    batches = iter(loader)
    next(batches)
    team = _team(loader)
    for _ in range(4):
        next(batches)
    assert int((tmp_path / "begun").read_text()) == _pid(team)
    loader.close()
    with pytest.raises(CancelledError):
        next(batches)
    data.close()


@pytest.mark.long
def test_a_data_set_that_no_other_process_can_have_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that cannot be pickled at once; one of a module that is nowhere as soon as the process knows."""
    data = voxload.VolumeDataset(f"{folder}/*.h5", **WORDS)
    data.read_targets = lambda index: torch.tensor([float(index)])  # type: ignore[method-assign]
    with pytest.raises(UsageError, match=r'readers="process": found a data set that cannot be pickled'):
        next(iter(voxload.DataLoader(data, readers="process")))
    module = types.ModuleType("nowhere_to_be_found")
    kind = type("Own", (voxload.VolumeDataset,), {"__module__": module.__name__})
    module.Own = kind  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    loader = voxload.DataLoader(kind(f"{folder}/*.h5", **WORDS), 1, readers="process")
    batches = iter(loader)
    team = loader._pipeline._ahead.reads._others  # type: ignore[union-attr]
    assert isinstance(team, ReaderTeam)
    assert team._thread is not None
    team._thread.join(processes.LIMIT)
    with pytest.raises(UsageError, match=r"another process cannot make: ModuleNotFoundError: .*nowhere_to_be_found"):
        list(batches)
    loader.close()
    data.close()


def test_arguments_are_checked(data: voxload.VolumeDataset) -> None:
    """Words that are none, and a cache, whose blocks this process keeps."""
    with pytest.raises(UsageError, match=r"readers: found 'fork'"):
        voxload.DataLoader(data, readers="fork")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r'readers: found "process" with a cache'):
        voxload.DataLoader(data, readers="process", cache=voxload.Cache())
