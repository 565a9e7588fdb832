"""ThrottledStorage: the server as a process of its own, and what it says it served."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.throttle.server import LOG

_START = 30.0
"""Seconds that the process may take to begin."""
_ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class Served:
    """One request that was answered."""

    path: str
    """File, relative to the folder."""
    start: int
    """First byte sent."""
    stop: int
    """The one behind the last; equal to `start` where nothing was sent."""

    @property
    def nbytes(self) -> int:
        """Bytes sent."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class ThrottledStorage:
    """A server that runs."""

    url: str
    """Of the folder, without a slash at the end."""
    pid: int
    """Its process."""

    def forget(self) -> None:
        """Begin a new log."""
        with urllib.request.urlopen(urllib.request.Request(self.url + LOG, method="DELETE"), timeout=_START):  # noqa: S310 - an http URL of our own
            pass

    def served(self) -> list[Served]:
        """Return all requests since the log began, in the order in which they ended."""
        with urllib.request.urlopen(self.url + LOG, timeout=_START) as answer:  # noqa: S310 - an http URL of our own
            return [Served(*entry) for entry in json.load(answer)]


@contextmanager
def throttled_storage(folder: Path, *, bandwidth: float, latency: float) -> Iterator[ThrottledStorage]:
    """Serve a folder from another process on the loopback interface, as long as the context lasts.

    It ends with this process too, however that ends: its standard input does.

    Parameters
    ----------
    folder
        What is served.
    bandwidth
        Bytes per second, all clients together.
    latency
        Seconds that each request waits before its first byte.

    Raises
    ------
    RuntimeError
        The server does not begin within half a minute.
    """
    command = [sys.executable, "-m", "tests.support.throttle", str(folder.resolve())]
    command += ["--bandwidth", str(bandwidth), "--latency", str(latency)]
    with subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdin
            assert process.stdout
            ready, _, _ = select.select([process.stdout], [], [], _START)
            url = process.stdout.readline().strip() if ready else ""
            if not url:
                raise RuntimeError(f"the throttled server of {folder} did not begin: {' '.join(command)}")
            yield ThrottledStorage(url, process.pid)
        finally:
            process.kill()
