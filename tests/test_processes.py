"""Processes that tests start: whatever those start, however fast, nothing outlives them."""

from __future__ import annotations

import subprocess
import sys

from tests.support import processes

_ROUNDS = 10
_ALIVE = 30
_BREEDER = f"""
import collections, subprocess
alive = collections.deque()
while True:
    alive.append(subprocess.Popen(["sleep", "1000"], start_new_session=True))
    if len(alive) > {_ALIVE}:
        print("many", flush=True)
        alive[0].kill()
        alive.popleft().wait()
"""
"""Starts one process after the other in sessions of their own, by which they are not found."""


def test_what_is_started_meanwhile_is_ended() -> None:
    """A process that starts others until its very end leaves none of them."""
    before = processes.descendants()
    for _ in range(_ROUNDS):
        with processes.started([sys.executable, "-S", "-c", _BREEDER], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
    assert processes.descendants() == before
