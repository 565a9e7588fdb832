"""What tests of the service share: services as processes of their own, and looks at them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import processes
from tests.support.settled import settle

_SCRIPT = Path(__file__).parent / "listening.py"
_PAUSE = 0.01
_never = threading.Event()


def until(is_so: Callable[[], Any]) -> Any:
    """Wait until something is so, and return what says it."""
    for _ in range(int(processes.LIMIT / _PAUSE)):
        found = is_so()
        if found:
            return found
        _never.wait(_PAUSE)
    raise AssertionError("it never came to be")


class Service:
    """A service in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], path: Path) -> None:
        self.process, self.path = process, path
        self.said = self._line()

    def who(self) -> list[dict[str, Any]]:
        """Return its sessions."""
        found: list[dict[str, Any]] = self._ask("who")
        return found

    def figures(self) -> dict[str, Any]:
        """Return what it keeps and for whom."""
        found: dict[str, Any] = self._ask("figures")
        return found

    def descriptors(self) -> int:
        """Return how many it has."""
        found: int = self._ask("open")
        return found

    def send(self, number: signal.Signals) -> None:
        """Send it a signal; one that was killed is waited for."""
        self.process.send_signal(number)
        if number is signal.SIGKILL:
            self.process.wait()

    def end(self) -> int:
        """Let it end, and return its status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait()

    def _ask(self, word: str) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        return json.loads(self._line())

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


Start = Callable[..., Service]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where a service may listen."""
    return tmp_path / "service" / "socket"


@pytest.fixture
def start(path: Path) -> Iterator[Start]:
    """Yield a function that starts a service."""
    with ExitStack() as stack:

        def begin(
            *, at: Path = path, lease: float = 600.0, memory: int = 0, disk: Path | str = "", disk_size: int = 0
        ) -> Service:
            command = [sys.executable, str(_SCRIPT), *map(str, (at, lease, memory, disk, disk_size))]
            process = stack.enter_context(
                processes.started(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
                )
            )
            return Service(process, at)

        yield begin


@pytest.fixture
def service(start: Start) -> Service:
    """Return a service."""
    found = start()
    assert found.said == "ready"
    return found


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """Return a file of numbers that are all different, which was written a while ago."""
    path = tmp_path / "volume.npy"
    np.save(path, np.arange(2 * 8**3, dtype=np.int32).reshape(2, 8, 8, 8))
    settle(path)
    return path
