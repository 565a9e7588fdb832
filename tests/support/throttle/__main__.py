"""``python -m tests.support.throttle FOLDER``: serve until standard input ends; the first line printed is the URL."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from tests.support.throttle.server import Server


async def _serve(server: Server) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, ended.set)
    async with server.listen() as url:
        print(url, flush=True)
        await ended.wait()


def main() -> None:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.throttle", description=__doc__)
    parser.add_argument("folder", type=Path, help="what is served")
    parser.add_argument("--bandwidth", type=float, required=True, help="bytes per second, all clients together")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds that each request waits")
    words = parser.parse_args()
    asyncio.run(_serve(Server(words.folder, words.bandwidth, words.latency)))


if __name__ == "__main__":
    main()
