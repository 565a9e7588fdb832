"""A user of the node: a process that gives up root's rights, and does what it is told, a line at a time.

    python -m tests.serve.tenancy.user UID GID GROUPS SOCKET VOLUME

What it imports, it imports first: others may not look into the folder of this Python.
"""

# ruff: noqa: T201 - who started it listens
from __future__ import annotations

import ctypes
import json
import mmap
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from tests.serve.talking import Client, content, octant
from tests.support import processes
from voxload.serve.protocol.packets import PacketSocket

_PTRACE_ATTACH = 16
_BLOCKS = 8


class User:
    """What it does; each method answers with what it found."""

    def __init__(self, path: str, volume: Path) -> None:
        self._path, self._volume = path, volume
        self._blocks = [octant(volume, number) for number in range(_BLOCKS)]
        self._client: Client | None = None

    def connect(self) -> bool:
        """Become a client, and name all blocks."""
        self._client = Client(PacketSocket.connect(self._path, processes.LIMIT))
        self._client.name(*self._blocks)
        return True

    def want(self, number: int) -> list[Any]:
        """Wait for a block; return what was said, and the sum of what is there."""
        said = self._said(number)
        if said not in ("there", "unavailable"):  # its lease ended on a busy machine, or its tenant did
            self.connect()
            said = self._said(number)
        found = None
        with suppress(OSError):
            found = content(self._in, self._blocks[number]) if said == "there" else None
        return [said, None if found is None else int(np.int64(found).sum())]

    @property
    def _in(self) -> Client:
        if self._client is None:
            raise AssertionError("connect first")
        return self._client

    def _said(self, number: int) -> str:
        with suppress(BrokenPipeError, ConnectionResetError):
            return str(self._in.want(number, again=1).get("kind", ""))
        return ""

    def write_to_memory(self) -> list[str]:
        """Try all ways to write to what was given; return what became of each."""
        memory = self._in.descriptor
        return [
            _tried(lambda: mmap.mmap(memory, 4096)),
            _tried(lambda: os.pwrite(memory, b"x", 0)),
            _tried(lambda: os.open(f"/proc/self/fd/{memory}", os.O_RDWR)),
            _tried(lambda: os.fchmod(memory, 0o666)),
            _tried(lambda: os.ftruncate(memory, 0)),
        ]

    def look_into(self, pid: int) -> list[str]:
        """Try all ways into a process; return what became of each."""
        libc = ctypes.CDLL(None, use_errno=True)

        def attach() -> None:
            if libc.ptrace(_PTRACE_ATTACH, pid, 0, 0):
                raise OSError(ctypes.get_errno(), "ptrace")

        return [
            _tried(lambda: os.listdir(f"/proc/{pid}/fd")),  # noqa: PTH208
            _tried(lambda: Path(f"/proc/{pid}/mem").read_bytes()),
            _tried(lambda: Path(f"/proc/{pid}/environ").read_bytes()),
            _tried(attach),
        ]

    def send(self, pid: int, number: int) -> str:
        """Send a process a signal."""
        return _tried(lambda: os.kill(pid, signal.Signals(number)))


def _tried(act: Callable[[], Any]) -> str:
    try:
        act()
    except OSError as error:
        return type(error).__name__
    return "done"


def main(uid: int, gid: int, groups: str, path: str, volume: str) -> None:
    """Be a user until the end of the input."""
    os.setgroups([int(one) for one in groups.split(",") if one])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    user = User(path, Path(volume))
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        name, *words = json.loads(line)
        print(json.dumps(getattr(user, name)(*words)), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
