"""SIGKILL at every state that the folder passes through: each of them is taken up, and the end is always the same."""

from __future__ import annotations

import io
import multiprocessing
import os
import shutil
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from tests.convert.trees import tree
from voxload.convert import ConvertOptions, Hints, Packing, StoredFormat, convert

CALLS = frozenset(
    ("open", "write", "pwrite", "pwritev", "truncate", "ftruncate", "rename", "replace", "unlink", "mkdir", "rmdir")
)
"""Names of what may change a folder, in the modules below and as methods of files."""
SHARE = 8
"""Long tests that divide the states of a format among them."""
QUICK = 40
"""One of so many states is looked at in the short run: each takes two conversions."""
STEP = 9
"""The same of the long run where volumes are replaced: one by one, they would take minutes."""


def _options(stored: StoredFormat, pack: Packing = Packing.NEVER) -> ConvertOptions:
    return ConvertOptions(format=stored, hints=Hints("DHWC"), chunks=(16, 16, 16), pack=pack, workers=2, checksums=True)


def _state(folder: Path) -> frozenset[tuple[str, int, int]]:
    """Return what tells a state of a folder from others."""
    found = []
    for name, _, files in os.walk(folder):
        for path in (Path(name), *(Path(name, file) for file in files)):
            with suppress(FileNotFoundError):  # another thread has just removed it
                status = path.stat()
                found.append((str(path), status.st_ino, status.st_size))
    return frozenset(found)


class _Killer:
    """Ends its own process when a folder is in its so-manieth state; counts them.

    Parameters
    ----------
    folder
        The folder.
    last
        The state, from 1 on.
    """

    def __init__(self, folder: Path, last: int) -> None:
        self._folder, self._last = folder, last
        self._before = _state(folder)
        self._lock = threading.Lock()
        self.states = 0

    def look(self, _frame: FrameType, event: str, called: Any) -> None:
        """Look at the folder after each call that may have changed it, as a profiler of Python does."""
        if event != "c_return" or called.__name__ not in CALLS:
            return
        if called.__module__ not in ("posix", "io", "_io") and not isinstance(called.__self__, io.IOBase):
            return
        with self._lock:
            state = _state(self._folder)
            self.states += state != self._before
            self._before = state
            if self.states == self._last:
                os.kill(os.getpid(), signal.SIGKILL)


def _convert(src: Path, dst: Path, stored: StoredFormat, last: int, states: Any) -> None:
    killer = _Killer(dst, last)
    threading.setprofile(killer.look)
    sys.setprofile(killer.look)
    convert(src, dst, options=_options(stored))
    sys.setprofile(None)
    states.value = killer.states


class _Processes:
    """Conversions in processes of their own; the first one tells how many states there are."""

    def __init__(self, src: Path, stored: StoredFormat) -> None:
        self._src, self._stored = src, stored
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["voxload.convert", __name__])

    def run(self, out: Path, last: int) -> tuple[int | None, int]:
        """Convert until the folder's `last` state; return the process's exit code, and the states if it ended."""
        states = self._context.Value("i")
        process = self._context.Process(target=_convert, args=(self._src, out, self._stored, last, states))
        process.start()
        process.join()
        return process.exitcode, states.value


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """Give two cubes of eight chunks."""
    folder = tmp_path / "raw"
    folder.mkdir()
    for number in range(2):
        counts = np.random.default_rng(number).poisson(3, (32, 32, 32, 2))
        np.save(folder / f"u{number}.npy", counts.astype("i2"))
    return folder


@pytest.mark.few_cases(2)
@pytest.mark.parametrize(
    ("share", "step"), [(7, QUICK), *(pytest.param(share, SHARE, marks=pytest.mark.long) for share in range(SHARE))]
)
@pytest.mark.parametrize("stored", list(StoredFormat))
def test_killed_in_every_state(tmp_path: Path, raw: Path, stored: StoredFormat, share: int, step: int) -> None:
    """Whatever call was the last one, the next run ends as if there had been one run, and leaves nothing else."""
    source = raw / "u0.npy"
    processes = _Processes(source, stored)
    code, states = processes.run(tmp_path / "expected", -1)
    assert code == 0
    assert states > 30
    expected = tree(tmp_path / "expected")
    out = tmp_path / "out"
    for last in range(1 + share, states + 1, step):
        code, found = processes.run(out, last)
        assert code == -signal.SIGKILL or found < last  # threads may change two files between two looks
        convert(source, out, options=_options(stored))
        assert tree(out) == expected, f"killed in state {last} of {states}"
        shutil.rmtree(out)


@pytest.mark.few_cases(2)
@pytest.mark.parametrize(
    ("pack", "step"),
    [
        (Packing.NEVER, QUICK),
        *(pytest.param(pack, STEP, marks=pytest.mark.long) for pack in (Packing.NEVER, Packing.ALWAYS)),
    ],
)
@pytest.mark.parametrize("stored", list(StoredFormat))
def test_killed_while_volumes_are_replaced(
    tmp_path: Path, raw: Path, stored: StoredFormat, pack: Packing, step: int
) -> None:
    """Volumes that others take the place of, under their names or beside them, are never seen by halves."""
    first, older, out = raw / "u0.npy", tmp_path / "older", tmp_path / "out"
    content, times = first.read_bytes(), first.stat()
    np.save(first, np.load(first) + 1)
    convert(raw, older, options=_options(stored, pack))
    first.write_bytes(content)
    os.utime(first, ns=(times.st_atime_ns, times.st_mtime_ns))
    processes = _Processes(raw, stored)
    convert(raw, tmp_path / "expected", options=_options(stored))
    shutil.copytree(older, out)
    code, states = processes.run(out, -1)
    assert code == 0
    for last in range(step // 2, states + 1, step):
        shutil.rmtree(out)
        shutil.copytree(older, out)
        code, found = processes.run(out, last)
        assert code == -signal.SIGKILL or found < last
        convert(raw, out, options=_options(stored))
        assert tree(out) == tree(tmp_path / "expected"), f"killed in state {last} of {states}"
