"""What processes listen at, as the kernel tells it."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_LISTEN = "0A"
"""TCP_LISTEN in /proc/net/tcp; proc(5)."""


def listening(pids: Iterable[int]) -> set[tuple[str, int]]:
    """Return (address, port) of every TCP socket at which one of these processes listens."""
    inodes = set()
    for pid in pids:
        with suppress(OSError):
            for name in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    inodes.add(name.readlink().name.removeprefix("socket:[").removesuffix("]"))
    found = set()
    for table in ("tcp", "tcp6"):
        with suppress(FileNotFoundError):
            for row in Path(f"/proc/{os.getpid()}/net/{table}").read_text().splitlines()[1:]:
                columns = row.split()
                if columns[3] == _LISTEN and columns[9] in inodes:
                    found.add(_place(columns[1]))
    return found


def _place(text: str) -> tuple[str, int]:
    """Return address and port as /proc/net/tcp writes them: words of 32 bits, each in this machine's order."""
    words, port = text.split(":")
    packed = b"".join(bytes.fromhex(words[at : at + 8])[::-1] for at in range(0, len(words), 8))
    return str(ipaddress.ip_address(packed)), int(port, 16)
