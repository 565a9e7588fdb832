"""A service as a process, which only lets clients in or, with memory, keeps blocks; each word is answered by a line.

``who`` is answered with the sessions, ``figures`` with what is kept, ``open`` with how many descriptors the process
has; the end of the input ends it.
"""

# ruff: noqa: T201 - who started it listens
from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from voxload.errors import VoxloadError
from voxload.serve.door import Door
from voxload.serve.reception import Reception
from voxload.serve.sessions import Sessions

if TYPE_CHECKING:
    from voxload.serve.keeping.keeper import Keeper


def keeping(memory: int, sessions: Sessions, disk: tuple[Path, int] | None) -> Keeper:
    """Return what keeps blocks."""
    from voxload.serve.keeping.keeper import Keeper  # noqa: PLC0415 - it brings the readers, which take a second

    return Keeper(memory, threads=2, sessions=sessions, disk=disk)


async def main(path: Path, lease: float, memory: int, disk: tuple[Path, int] | None) -> None:
    """Listen until the end of the input."""
    sessions = Sessions(lease=lease, most=512, most_of_user=512)
    try:
        keeper = keeping(memory, sessions, disk) if memory else None
        reception = Reception(sessions, work=keeper)
        door = Door(path, reception)
    except VoxloadError as error:
        print(error, flush=True)
        return
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    words = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(words), sys.stdin)
    while word := (await words.readline()).strip():
        if word == b"who":
            answer: object = [asdict(one) for one in sessions]
        elif word == b"figures" and keeper is not None:
            answer = keeper.figures()
        else:
            answer = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        print(json.dumps(answer), flush=True)
    door.close()
    reception.close()
    if keeper is not None:
        keeper.close()


if __name__ == "__main__":
    socket, lease, memory, folder, size = sys.argv[1:]
    disk = (Path(folder), int(size)) if folder else None
    asyncio.run(main(Path(socket), float(lease), int(memory), disk))
