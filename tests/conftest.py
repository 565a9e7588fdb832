"""What all tests share: hypothesis profiles, leak checks, and the conformance kits of tests/laws."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import fsspec.asyn
import pytest
import zarr.core.sync
from hypothesis import HealthCheck, settings

settings.register_profile(
    "fast",
    deadline=None,  # the first call of a library pays for its imports
    max_examples=50,
    database=None,  # a test leaves no files
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("ci", settings.get_profile("fast"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "fast")

_LASTING_THREADS = ("fsspecIO", "zarr_io", "asyncio_", "zarr_pool", "voxload-decode", "voxload-fetch")
"""Threads that last as long as the process, by how their names begin: zarr-python's, fsspec's, ours."""


def _open_files() -> Counter[str]:
    """Return what this process has open, by name; sockets and event queues have none."""
    found: Counter[str] = Counter()
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            name = str(descriptor.readlink())
        except FileNotFoundError:  # the descriptor of this very listing
            continue
        if name.startswith(("/", "pipe:")) and not name.startswith(("/proc/", "/dev/")):
            found[name] += 1
    return found


async def _other_tasks() -> None:
    """Wait for what else runs in this event loop."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=5)


def _settle() -> None:
    """Let zarr-python end the reads of a batch of which another one failed: it does not wait for them itself."""
    asyncio.run_coroutine_threadsafe(_other_tasks(), zarr.core.sync._get_loop()).result(timeout=10)


@pytest.fixture(scope="session")
def _library_loops() -> None:
    """Start the event loops that zarr-python and fsspec keep, so that no test is charged for them."""
    fsspec.asyn.get_loop()
    zarr.core.sync._get_loop()


@pytest.fixture
def no_leaks(_library_loops: None) -> Iterator[None]:
    """Fail a test that leaves a file open or a thread running; opt in with ``pytest.mark.usefixtures``."""
    files, threads = _open_files(), set(threading.enumerate())
    yield
    _settle()
    left_open = _open_files() - files
    assert not left_open, f"left open: {dict(left_open)}"
    running = [
        thread for thread in set(threading.enumerate()) - threads if not thread.name.startswith(_LASTING_THREADS)
    ]
    for thread in running:
        thread.join(timeout=5)
    assert not any(thread.is_alive() for thread in running), f"left running: {running}"


@pytest.fixture(scope="session")
def law() -> Callable[[str], ModuleType]:
    """Return a loader of conformance kits: tests are no package, so the kits are loaded from their files."""

    def load(name: str) -> ModuleType:
        path = Path(__file__).parent / "laws" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(f"voxload_laws_{name}", path)
        if spec is None or spec.loader is None:
            raise FileNotFoundError(path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture(scope="session")
def laws(law: Callable[[str], ModuleType]) -> ModuleType:
    """Return the conformance kit of readers."""
    return law("reader")
