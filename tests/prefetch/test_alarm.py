"""Alarm: what was told is done a moment later, by another thread, once for all that told it meanwhile."""

from __future__ import annotations

import gc
import os
import queue
import threading
import weakref

import pytest

from tests.support import processes
from voxload.prefetch.execution.alarm import Alarm


@pytest.mark.usefixtures("no_leaks")
def test_it_acts_after_it_was_armed_and_only_then() -> None:
    """By a thread that is not the caller's; armed again while it acts, it acts again."""
    acted: queue.SimpleQueue[str] = queue.SimpleQueue()
    gate = threading.Semaphore(0)

    def act() -> None:
        acted.put(threading.current_thread().name)
        assert gate.acquire(timeout=processes.LIMIT)

    alarm = Alarm(act)
    for _ in range(3):
        alarm.arm()
        assert acted.get(timeout=processes.LIMIT) == "voxload-alarm"
        alarm.arm()
        gate.release()
        assert acted.get(timeout=processes.LIMIT) == "voxload-alarm"
        gate.release()
    alarm.close()
    assert acted.empty()


@pytest.mark.usefixtures("no_leaks")
def test_it_ends_with_its_owner_and_is_deaf_then() -> None:
    """Closed, or dropped; who still tells it does nothing, and nothing to a file of the same number."""
    acted = threading.Event()
    alarm = Alarm(acted.set)
    arm, thread = alarm.arm, alarm._thread
    alarm.close()
    assert not thread.is_alive()
    read, write = os.pipe()
    arm()
    os.write(write, b"x")
    assert os.read(read, 1) == b"x"
    os.close(read)
    os.close(write)
    dropped = Alarm(acted.set)
    thread, gone = dropped._thread, weakref.ref(dropped)
    del dropped
    gc.collect()
    thread.join(processes.LIMIT)
    assert gone() is None
    assert not thread.is_alive()
    assert not acted.is_set()
