"""What all tests share: hypothesis profiles, leak checks, and the conformance kits of tests/laws."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import os
import random
import shutil
import signal
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterator
from multiprocessing.util import Finalize
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
import zarr.core.sync
from hypothesis import HealthCheck, settings

from tests.support import devices, processes
from tests.support.examples import IS_THOROUGH, choose_few, draw_few
from tests.support.leftovers import Snapshot, open_what_lasts
from tests.support.memory import ARENA_MAX, LIMIT, Trimmer
from voxload.units import format_bytes

settings.register_profile(
    "fast",
    deadline=None,  # the first call of a library pays for its imports
    max_examples=50,
    database=None,  # a test leaves no files
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("ci", settings.get_profile("fast"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "fast")

_FULL_COLLECTIONS = 200
"""Younger ones before each: 10 is Python's, with which each module that a test imports late brings several."""
_TEMPORARY = pytest.StashKey[str]()
"""Folder for the temporary files of this process, which nobody else uses."""
_trimmer = Trimmer()
_held = list[int]()
"""Most bytes that each worker held after a test."""


def pytest_configure(config: pytest.Config) -> None:
    """Become the parent of whatever tests leave behind; a process that is told to end ends that, too."""
    # For workers, which this process is about to start: only a process that starts with it has one arena, and neither
    # users nor what tests start have it, see tests.support.memory.
    os.environ.pop(ARENA_MAX, None)
    if config.getoption("numprocesses", None):
        os.environ[ARENA_MAX] = "1"
    torch.manual_seed(0)  # models among parameters are made when tests are collected
    gc.disable()  # until all is imported: a fifth of the collection's time went into looking through what stays
    processes.adopt()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        # A shell that puts a run into the background lets it ignore Ctrl-C, and with it all that tests start.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    folder = tempfile.mkdtemp(prefix="vt-")
    Path(folder).chmod(0o711)  # tests that read as another user go through it
    config.stash[_TEMPORARY] = os.environ["TMPDIR"] = tempfile.tempdir = folder
    # Behind multiprocessing's own folder, which is in there and goes with the priority -100.
    Finalize(None, shutil.rmtree, args=(folder,), kwargs={"ignore_errors": True}, exitpriority=-200)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Run one more than there are cores: tests wait for processes of their own, too."""
    return len(os.sched_getaffinity(0)) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Share out files of tests, those that need the same long preparation to one worker."""
    from tests.support.sharing import Shared  # noqa: PLC0415 - bench.gpu runs tests where xdist is not

    return Shared(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Draw as many examples, and run as many cases, as there is time for."""
    draw_few(items)
    choose_few(items)


def pytest_collection_finish() -> None:
    """Keep what was imported out of collections: each of the many that tests ask for took 0.4 s to go through it."""
    open_what_lasts()
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*gc.get_threshold()[:2], _FULL_COLLECTIONS)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the process that shares out the tests what this one held; too much fails `make test`."""
    told = getattr(session.config, "workeroutput", None)
    if told is not None:
        told["most"] = _trimmer.most
    elif max(_held, default=0) > LIMIT and not IS_THOROUGH and "not long" in session.config.option.markexpr:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Note what a worker held; one that died has told nothing."""
    _held.extend(filter(None, [getattr(node, "workeroutput", {}).get("most")]))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what workers held."""
    if _held:
        sizes = " ".join(format_bytes(most) for most in _held)
        terminalreporter.write_line(f"workers held at most {sizes} (to be under {format_bytes(LIMIT)} in `make test`)")


def pytest_unconfigure() -> None:
    """End what is left."""
    processes.end(processes.descendants())


@pytest.fixture(autouse=True)
def _same_numbers(request: pytest.FixtureRequest) -> None:
    """Give a test the same random numbers in every run: weights that nobody seeded decide, once in hundreds."""
    seed = zlib.crc32(request.node.nodeid.encode())
    torch.default_generator.manual_seed(seed)  # torch.manual_seed asks for every kind of device first, for 1 ms
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call] # torch leaves it untyped
        torch.cuda.manual_seed_all(seed)
    np.random.seed(seed)  # noqa: NPY002 - that of code which uses it
    random.seed(seed)


@pytest.fixture(autouse=True)
def _nothing_is_left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fail a test that leaves a process, a thread or a segment, or outside of pytest's folders a file, open or not."""
    folders = (request.config.stash[_TEMPORARY], str(request.config.rootpath))
    before = Snapshot.take(folders)
    yield
    _settle()
    left = before.left_behind(shared=str(tmp_path_factory.getbasetemp()))
    _trimmer.trim()
    assert not left, f"left behind: {left}"


async def _other_tasks() -> None:
    """Wait for what else runs in this event loop."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=processes.LIMIT)


def _settle() -> None:
    """Let zarr-python end the reads of a batch of which another one failed: it does not wait for them itself."""
    loop = zarr.core.sync.loop[0]
    if loop is not None:
        asyncio.run_coroutine_threadsafe(_other_tasks(), loop).result(timeout=processes.LIMIT)


@pytest.fixture
def no_leaks() -> Iterator[None]:
    """Fail a test that leaves open a file of its data sets, too; opt in with ``pytest.mark.usefixtures``."""
    before = Snapshot.take(())
    yield
    _settle()
    left = before.left_behind()
    assert not left, f"left behind: {left}"


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Return what tests marked ``gpu`` run on."""
    return devices.chosen()


@pytest.fixture(scope="session")
def cuda(device: torch.device) -> torch.device:
    """Return the GPU; tests of what a host does not have are skipped without one."""
    if device.type != "cuda":
        pytest.skip("needs a GPU")
    return device


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
