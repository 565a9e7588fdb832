"""Alarm: a thread that does something a moment after it was told to; telling it wakes nobody.

A thread that is woken wants the interpreter's lock at once. Who wakes it from within a tensor's end, where torch lets
go of that lock for a moment, loses the lock to it: a loop that drops a batch would wait until the thread has begun to
read the next one. A timer of the kernel wakes it when the loop is elsewhere.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from voxload.core.library import function

_LATER = 300_000
"""Nanoseconds: some times what a loop takes from dropping one batch to working on the next."""
_MONOTONIC, _CLOEXEC = 1, os.O_CLOEXEC
"""CLOCK_MONOTONIC and TFD_CLOEXEC of timerfd_create(2)."""
_libc = ctypes.CDLL(None, use_errno=True)
# Called with the interpreter's lock: letting go of it is what is to be avoided.
_arm = function("arm_timer", "ino", keeps_lock=True)
_put_off = function("put_off_timer", "in", keeps_lock=True)
_end_timer = function("end_timer", "i", keeps_lock=True)


class _Timer:
    """A timer's descriptor, which is closed with the last who may arm it: no other file has its number before."""

    def __init__(self) -> None:
        self._as_parameter_ = int(_libc.timerfd_create(_MONOTONIC, _CLOEXEC))
        if self._as_parameter_ < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        weakref.finalize(self, os.close, self._as_parameter_).atexit = False

    def wait(self) -> None:
        """Wait until it ends."""
        os.read(self._as_parameter_, 8)


@dataclass(slots=True)
class _Line:
    """What the thread shares with the alarm; it keeps nothing of that."""

    timer: _Timer
    act: Callable[[], None]
    is_over: bool = False

    def end(self) -> None:
        """Let the thread end."""
        self.is_over = True
        _end_timer(self.timer)


class Alarm:
    """Calls something from a thread of its own, a moment after each `arm`; it ends with this object.

    Parameters
    ----------
    act
        What is called: once for all that armed it in between. It must not hold the alarm, and raises nothing.
    """

    def __init__(self, act: Callable[[], None]) -> None:
        timer = _Timer()
        self._line = _Line(timer, act)
        self.arm: Callable[[], None] = partial(_arm, timer, _LATER, None)
        """Let it be called in a moment; takes no lock, and lets go of none."""
        self.arm_for: Callable[[object], None] = partial(_arm, timer, _LATER)
        """The same, for a weak reference to call: no Python runs in it, so that no interrupt is raised there."""
        self.put_off: Callable[[], None] = partial(_put_off, timer, _LATER)
        """Where it is armed, let it be called a moment from now, and not before."""
        self._thread = threading.Thread(target=_attend, args=(self._line,), name="voxload-alarm", daemon=True)
        self._thread.start()
        self._end = weakref.finalize(self, _end, self._line, os.getpid())
        self._end.atexit = False

    def close(self) -> None:
        """End the thread."""
        self._end()
        self._thread.join()


def _attend(line: _Line) -> None:
    while True:
        line.timer.wait()
        if line.is_over:
            return
        line.act()


def _end(line: _Line, pid: int) -> None:
    if os.getpid() == pid:  # a forked child has no such thread, and its parent's timer
        line.end()
