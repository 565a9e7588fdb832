"""Processes that tests start: whatever those start, however fast, nothing outlives them."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.long
def test_what_is_started_meanwhile_is_ended() -> None:
    """A process that starts others until its very end leaves none of them."""
    before = processes.descendants()
    for _ in range(_ROUNDS):
        with processes.started([sys.executable, "-S", "-c", _BREEDER], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
    assert processes.descendants() == before


_HOLDER = """
import fcntl, signal, sys, threading
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
for _ in range(60):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print("held", flush=True)
signal.pause()
"""
"""Has so many threads that the first one is a zombie before the last one has ended."""


def test_what_was_ended_holds_nothing_any_more(tmp_path: Path) -> None:
    """A process is ended with its last thread: until then it has its files, and its locks."""
    for _ in range(_ROUNDS):
        command = [sys.executable, "-S", "-c", _HOLDER, str(tmp_path / "lock")]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process, (tmp_path / "lock").open("a") as lock:
            assert process.stdout is not None
            assert process.stdout.readline() == b"held\n"
            processes.end({process.pid})
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
