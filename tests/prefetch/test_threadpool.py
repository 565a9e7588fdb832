"""Workers: threads for reads that may hang."""

from __future__ import annotations

import gc
import sys
import threading
import time
from concurrent.futures import CancelledError

import pytest

from tests.support import processes
from voxload.prefetch.execution import threadpool
from voxload.prefetch.execution.threadpool import DaemonThreadPool


def test_as_many_at_once_as_asked_for() -> None:
    """Three tasks that wait for each other need three threads; more are not made."""
    meeting = threading.Barrier(3)
    with DaemonThreadPool(3, "some") as pool:
        places = [pool.submit(meeting.wait, 10) for _ in range(9)]
        assert sorted(place.result() for place in places) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
        assert sum(thread.name.startswith("some_") for thread in threading.enumerate()) == 3


def test_threads_that_are_idle_are_used_first() -> None:
    """One task after the other needs one thread."""
    with DaemonThreadPool(8, "few") as pool:
        names = {pool.submit(lambda: threading.current_thread().name).result() for _ in range(20)}
        assert len(names) <= 2


def test_errors_are_raised_to_who_asks() -> None:
    """And the thread goes on."""
    with DaemonThreadPool(1, "one") as pool:
        failed, fine = pool.submit(int, "x"), pool.submit(int, "7")
        with pytest.raises(ValueError, match="'x'"):
            failed.result()
        assert fine.result() == 7
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(int)


class _Noted:
    """A task that notes what became of it."""

    def __init__(self, gate: threading.Event | None = None) -> None:
        self.begun, self.told = threading.Event(), threading.Event()
        self.is_cancelled = False
        self._gate = gate

    def run(self) -> None:
        """See Task."""
        self.begun.set()
        assert self._gate is None or self._gate.wait(60)
        self.told.set()

    def cancel(self) -> None:
        """See Task."""
        self.is_cancelled = True
        self.told.set()


def test_tasks_that_are_posted_are_done_or_told_that_they_are_not() -> None:
    """In order; those that no thread has begun when the pool ends are cancelled, and none is taken behind that."""
    gate = threading.Event()
    pool = DaemonThreadPool(1, "posted")
    assert pool.is_idle
    first, second, third = _Noted(gate), _Noted(), _Noted()
    pool.post(first)
    assert first.begun.wait(60)
    pool.post(second)
    pool.posting(third)()
    assert not pool.is_idle
    pool.shutdown(wait=False, cancel_futures=True)
    assert (second.is_cancelled, third.is_cancelled, first.is_cancelled) == (True, True, False)
    gate.set()
    assert first.told.wait(60)
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.post(_Noted())


def test_closing_waits_for_what_hangs_no_longer_than_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has not begun is cancelled."""
    monkeypatch.setattr(threadpool, "GRACE", 0.05)
    begun, released = threading.Event(), threading.Event()
    pool = DaemonThreadPool(1, "stuck")

    def hang() -> bool:
        begun.set()
        return released.wait()

    hanging = pool.submit(hang)
    waiting = pool.submit(int)
    begun.wait()
    pool.shutdown(cancel_futures=True)  # would never return if it waited for what hangs
    with pytest.raises(CancelledError):
        waiting.result()
    released.set()
    assert hanging.result(processes.LIMIT)
    pool.join(time.monotonic() + processes.LIMIT)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("stuck_")]


def test_threads_go_with_the_pool() -> None:
    """A pool that nobody holds ends its threads."""
    pool = DaemonThreadPool(2, "gone")
    pool.submit(int).result()
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("gone_")]
    assert threads
    del pool
    gc.collect()
    for thread in threads:
        thread.join(processes.LIMIT)
        assert not thread.is_alive()


HANGS = """
import threading
from voxload.prefetch.execution import threadpool
threadpool.GRACE = 0.1
pool, begun = threadpool.DaemonThreadPool(2, "x"), threading.Event()
pool.submit(lambda: begun.set() or threading.Event().wait())
begun.wait()
raise SystemExit(3)
"""


LEAVES = """
import threading, time
from concurrent.futures import ThreadPoolExecutor
from voxload.prefetch.execution import threadpool
pool, begun, helpers = threadpool.DaemonThreadPool(1, "x"), threading.Event(), ThreadPoolExecutor(1)
helpers.submit(int).result()  # its thread is there: Python 3.12 starts none once the main thread has ended
pool.submit(lambda: begun.set() or time.sleep(0.5) or print(helpers.submit(lambda: "done").result()))
begun.wait()
pool.shutdown(wait=False)
del pool
"""


def test_a_process_waits_for_what_a_pool_left_behind() -> None:
    """A pool that is gone may have left a thread within a library that has threads too, and bears to lose none."""
    done = processes.run([sys.executable, "-c", LEAVES], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_a_process_ends_though_a_read_hangs() -> None:
    """With the status that it chose."""
    done = processes.run([sys.executable, "-c", HANGS], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (3, "")
