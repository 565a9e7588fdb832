"""Leftovers: what a test leaves behind in its process, in the folder for temporary files and in the working folder."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import forkserver, resource_tracker
from typing import Any

from tests.support import processes

LASTING_THREADS = (
    "fsspecIO",
    "zarr_io",
    "asyncio_",
    "zarr_pool",
    "voxload-decode",
    "voxload-fetch",
    "IO loop",
    "Dask-",
)
"""Threads that last as long as the process, by how their names begin: zarr-python's, fsspec's, ours, Dask's."""
_MONITOR = "TMonitor"
"""The class of tqdm's, which lasts as well and has had a name of its own for a short while only."""
_SHARER = "(_serve)"
"""How the name of multiprocessing's thread ends that sends descriptors to other processes; it lasts, too."""
_HEAP = "/dev/shm/pym-"  # noqa: S108 - a name
"""How names of multiprocessing's own heap begin, which it keeps for the next array."""
LASTING_FILES = (
    "tmp",
    "torchinductor_",
    "torchelastic_",
    "pymp-",
    "__pycache__",
    ".pytest_cache",
    ".ruff_cache",
    ".mypy_cache",
)
"""What fsspec's caches, torch, multiprocessing and the tools keep, by how the names begin."""
_LIBRARIES = tuple(map(os.path.realpath, (sys.prefix, sys.base_prefix)))
"""Where libraries have files of their own, such as fonts, which they may keep open."""
_PATIENCE = 120.0
"""Seconds for what was told to end; only a test that fails waits for so long."""


@dataclass(frozen=True)
class Snapshot:
    """What there is at one moment."""

    children: set[int]
    threads: set[threading.Thread]
    files: Counter[str]
    """Names of what is open, the shared memory's among them."""
    names: dict[str, set[str]]
    """Names in the watched folders."""
    settings: dict[str, Any]
    """Those of torch in this thread."""

    @classmethod
    def take(cls, folders: tuple[str, ...]) -> Snapshot:
        """Look around; `folders` are those whose entries count."""
        names = {folder: set(os.listdir(folder)) for folder in folders}  # noqa: PTH208 - this runs around every test
        return cls(processes.descendants(), set(threading.enumerate()), open_files(), names, torch_settings())

    def left_behind(self, *, shared: str = "\0") -> list[str]:
        """Return in words what is there now and was not then; ends processes that are.

        Files below the folder `shared` may be open: data sets of wider fixtures open theirs when they are first read.
        """
        if processes.descendants() - self.children or self._running():
            gc.collect()  # what only a cycle of references keeps is not the test's
        return [*self._processes(), *self._threads(), *self._files(f"{shared}/"), *self._names(), *self._settings()]

    def _processes(self) -> list[str]:
        # What a process of a wider fixture starts meanwhile is that one's.
        theirs = set[int]().union(*map(processes.descendants, self.children))
        left = processes.descendants() - self.children - theirs
        left = processes.ended(left, patience=_PATIENCE) if left else left
        told = [f"process {processes.told(pid)}" for pid in sorted(left)]
        processes.end(left)
        return told

    def _running(self) -> list[threading.Thread]:
        return [
            thread
            for thread in set(threading.enumerate()) - self.threads
            if not thread.name.startswith(LASTING_THREADS)
            and not thread.name.endswith(_SHARER)
            and type(thread).__name__ != _MONITOR
        ]

    def _threads(self) -> list[str]:
        running = self._running()
        until = time.monotonic() + _PATIENCE
        for thread in running:
            thread.join(timeout=max(until - time.monotonic(), 0))
        return [f"thread {thread.name}" for thread in running if thread.is_alive()]

    def _opened(self, theirs: str) -> dict[str, int]:
        return {name: count for name, count in (open_files() - self.files).items() if not name.startswith(theirs)}

    def _files(self, theirs: str) -> list[str]:
        until = time.monotonic() + _PATIENCE
        while self._opened(theirs) and time.monotonic() < until:
            gc.collect()
            time.sleep(0.01)  # a thread that was told to end may read a file yet
        return [f"open file {name} ({count})" for name, count in self._opened(theirs).items()]

    def _settings(self) -> list[str]:
        now = torch_settings()
        return [f"torch's {name}: {now[name]}, before {was}" for name, was in self.settings.items() if now[name] != was]

    def _names(self) -> list[str]:
        return [
            f"{folder}/{name}"
            for folder, before in self.names.items()
            for name in sorted(set(os.listdir(folder)) - before)  # noqa: PTH208 - this runs around every test
            if not name.startswith(LASTING_FILES)
        ]


def torch_settings() -> dict[str, Any]:
    """Return what torch was told in this thread, and what of it decides how the next test's networks run."""
    if "torch" not in sys.modules:
        return {}
    torch = sys.modules["torch"]
    devices = ("cpu", "cuda")
    return {
        "gradients": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "autocast": tuple(map(torch.is_autocast_enabled, devices)),
        "types of autocast": tuple(map(torch.get_autocast_dtype, devices)),
        "default type": torch.get_default_dtype(),
        "threads": torch.get_num_threads(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
    }


def open_what_lasts() -> None:
    """Let libuv, on which torch's stores run, and CUDA make the pipes that they keep as long as this process lives."""
    if "torch" in sys.modules:
        from tests.support import devices  # noqa: PLC0415 - not where no test was imported
        from voxload.launch.rendezvous import LOOPBACK, store_at  # noqa: PLC0415 - likewise

        store_at(LOOPBACK, 1, timeout=timedelta(seconds=processes.LIMIT))
        place = devices.chosen()
        if place.type == "cuda":
            sys.modules["torch"].zeros(1, device=place)  # the driver keeps files and pipes of its own


def open_files() -> Counter[str]:
    """Return what this process has open, by name; sockets, event queues and devices have none."""
    found: Counter[str] = Counter()
    for descriptor in os.listdir("/proc/self/fd"):  # noqa: PTH208 - this runs around every test
        with suppress(OSError):  # the descriptor of this very listing, or one that a thread closed
            name = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - as above
            is_device = name.startswith(("/proc/", "/dev/")) and not name.startswith("/dev/shm/")  # noqa: S108 - a name
            is_lasting = name.startswith((*_LIBRARIES, _HEAP)) or name in processes.kept_files
            if name.startswith(("/", "pipe:")) and not is_device and not is_lasting:
                found[name] += 1
    for kept in (resource_tracker._resource_tracker._fd, forkserver._forkserver._forkserver_alive_fd):  # type: ignore[attr-defined]
        if kept is not None:  # multiprocessing keeps it for as long as this process lives
            with suppress(OSError):
                found.pop(os.readlink(f"/proc/self/fd/{kept}"), None)  # noqa: PTH115 - as above
    return found
