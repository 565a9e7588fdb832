"""A service that only lets clients in, as a process; each word on its standard input is answered by a line.

``who`` is answered with the sessions, ``open`` with how many descriptors the process has; the end of the input ends it.
"""

# ruff: noqa: T201 - who started it listens
from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from voxload.errors import VoxloadError
from voxload.serve.door import Door
from voxload.serve.sessions import Sessions


async def main(path: Path, lease: float) -> None:
    """Listen until the end of the input."""
    sessions = Sessions(lease=lease, most=512, most_of_user=512)
    try:
        door = Door(path, sessions)
    except VoxloadError as error:
        print(error, flush=True)
        return
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    words = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(words), sys.stdin)
    while word := (await words.readline()).strip():
        answer = [asdict(one) for one in sessions] if word == b"who" else len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        print(json.dumps(answer), flush=True)
    door.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), float(sys.argv[2])))
