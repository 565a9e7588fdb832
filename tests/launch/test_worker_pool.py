"""worker_pool: processes that end with their owner, and say nothing where the owner leaves early."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from tests.support import processes
from voxload.errors import InternalError
from voxload.launch.worker_pool import completed, worker_pool

pytestmark = pytest.mark.usefixtures("no_leaks")
LEAVING = """
import time
from voxload.launch.worker_pool import completed, worker_pool

def work(number):
    time.sleep(number % 3 / 100)
    return -number

if __name__ == "__main__":
    for _ in range(ROUNDS):
        try:
            with worker_pool(2) as pool:
                for number, found in completed(pool, work, range(100), ahead=20):
                    assert found == -number
                    if number > 5:
                        raise KeyboardInterrupt
        except KeyboardInterrupt:
            print("left")
"""
ROUNDS = 3


def test_all_is_done_and_few_are_ahead() -> None:
    """Of any iterable, whose end is not known."""
    taken = itertools.count()
    given = -1

    def numbers() -> Iterator[int]:
        for number in range(40):
            nonlocal given
            given = next(taken)
            yield number

    found = dict[int, int]()
    with worker_pool(2) as pool:
        for number, result in completed(pool, abs, (-one for one in numbers()), ahead=4):
            found[number] = result
            assert given - len(found) < 4
    assert found == {-number: number for number in range(40)}


@pytest.mark.long
def test_an_owner_that_leaves_early(tmp_path: Path) -> None:
    """Has nothing told to people: no thread of the pool's fails."""
    script = tmp_path / "leaving.py"
    script.write_text(LEAVING.replace("ROUNDS", str(ROUNDS)))
    command = [sys.executable, str(script)]
    done = processes.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "left\n" * ROUNDS, "")


def test_who_leaves_early_cancels_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was cancelled is what a pool fails on whose processes end then."""
    cancelled = list[Future[int]]()
    with worker_pool(1) as pool:
        found = completed(pool, abs, range(100), ahead=20)
        next(found)
        with monkeypatch.context() as patch:
            patch.setattr(Future, "cancel", cancelled.append)
            found.close()  # type: ignore[attr-defined]  # a generator
        assert cancelled == []


def test_work_that_fails_and_workers_that_are_killed() -> None:
    """Are told apart."""
    with pytest.raises(ValueError, match="invalid literal"), worker_pool(1) as pool:
        list(completed(pool, int, ["1", "x"], ahead=1))
    with pytest.raises(InternalError, match="one that was killed"), worker_pool(1) as pool:
        list(completed(pool, _end, [1], ahead=1))


def _end(status: int) -> None:
    os._exit(status)
