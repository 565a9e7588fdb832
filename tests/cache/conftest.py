"""What tests of tiers share: the kit, a look at what is left behind, processes that a test may kill, other users."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType, TracebackType
from typing import IO, Any, Self

import pytest

from tests.cache.two_users import BECOME, END
from voxload.cache.memory.segment import PREFIX, SHARED

_LAWS = Path(__file__).parent.parent / "laws"
_NURSERY = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
import tier, voxload.cache.memory.attached, voxload.cache.disk.tier, voxload.cache.memory.tier
for line in sys.stdin:
    request = json.loads(line)
    if "reap" in request:
        print(os.waitstatus_to_exitcode(os.waitpid(request["reap"], 0)[1]), flush=True)
        continue
    child = os.fork()
    if child == 0:
        for descriptor, name, flags in ((0, "words", os.O_RDONLY), (1, "answers", os.O_WRONLY)):
            opened = os.open(request[name], flags)
            os.dup2(opened, descriptor)
            os.close(opened)
        sys.argv = request["argv"]
        exec(request["script"], {"__name__": "__main__", "sys": sys})
        break
    print(child, flush=True)
"""
"""A process that has imported what children need, which takes seconds, and forks them."""


@pytest.fixture(scope="session")
def tier_laws(law: Callable[[str], ModuleType]) -> ModuleType:
    """Return the conformance kit of tiers."""
    return law("tier")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder that is not there yet."""
    return tmp_path / "tier"


@pytest.fixture
def no_segments() -> Iterator[None]:
    """Fail a test that leaves a segment in shared memory: one of this process, or one that nobody holds.

    Tests beside this one, in this run or another, kill owners on purpose; their segments have other jobs' names.
    """
    before = _segments()
    yield
    mapped = Path("/proc/self/maps").read_text()
    assert not [path for path in _segments() - before if str(path) in mapped or _is_dead(path)]


def _segments() -> set[Path]:
    """Return the segments of the jobs that tests of a single tier make."""
    return {path for job in ("job", "test") for path in SHARED.glob(f"{PREFIX}{job}-[0-9]*")}


def _is_dead(path: Path) -> bool:
    """Tell whether nobody holds a segment: tests of others on this machine have theirs."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        finally:
            os.close(descriptor)
        return path.exists()
    return False


class Child:
    """A process that runs a script and is talked to line by line."""

    def __init__(self, nursery: Nursery, folder: Path, script: str, argv: tuple[str, ...]) -> None:
        names = [str(folder / f"{uuid.uuid4()}") for _ in range(2)]
        for name in names:
            os.mkfifo(name)
        request = {"script": script, "words": names[0], "answers": names[1], "argv": ["", *argv]}
        self._nursery = nursery
        self._pid = int(nursery.ask(request))
        assert self._pid > 1
        self._words: IO[str] = Path(names[0]).open("w")  # noqa: SIM115 - closed by __exit__
        self._answers: IO[str] = Path(names[1]).open()  # noqa: SIM115 - as above
        self._is_over = False

    def hear(self) -> str:
        """Return its next line."""
        return self._answers.readline().strip()

    def say(self, line: str) -> None:
        """Send it a line."""
        print(line, file=self._words, flush=True)

    def kill(self) -> int:
        """End it by SIGKILL; return how it ended."""
        os.kill(self._pid, signal.SIGKILL)
        return self.wait()

    def wait(self) -> int:
        """Wait for its end; return how it ended."""
        self._is_over = True
        return int(self._nursery.ask({"reap": self._pid}))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        if not self._is_over:
            self.kill()
        with suppress(BrokenPipeError):
            self._words.close()
        self._answers.close()


class Nursery:
    """The process that forks children."""

    def __init__(self, answers: IO[str], words: IO[str]) -> None:
        self._answers, self._words = answers, words

    def ask(self, request: dict[str, Any]) -> str:
        """Return its answer."""
        print(json.dumps(request), file=self._words, flush=True)
        return self._answers.readline()


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Return the process that forks children."""
    command, pipe = [sys.executable, "-c", _NURSERY, str(_LAWS)], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield Nursery(process.stdout, process.stdin)
        process.kill()  # its own end takes seconds, for all that it imported


@pytest.fixture
def run_child(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Return what runs a script in a process of its own, as a context; it sees the kit as module `tier`."""
    folder = tmp_path_factory.mktemp("pipes")

    @contextmanager
    def run(script: str, *argv: str) -> Iterator[Child]:
        with Child(nursery, folder, script, argv) as child:
            yield child

    return run


@pytest.fixture
def shared() -> Iterator[Path]:
    """Return a folder in which every user may make files of their own, as in /tmp."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o1777)
        yield Path(name)


@pytest.fixture
def user(run_child: Callable[..., Any], shared: Path) -> Callable[..., Any]:
    """Return what runs a script as another user, with an umask that keeps nothing back."""

    def run(number: int, script: str, *argv: str, umask: str = "0") -> Any:
        return run_child(BECOME + script + END, str(number), umask, str(shared), *argv)

    return run
