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
from dataclasses import dataclass, field
from typing import Any

_LATER = 300_000
"""Nanoseconds: some times what a loop takes from dropping one batch to working on the next."""
_MONOTONIC, _CLOEXEC = 1, os.O_CLOEXEC
"""CLOCK_MONOTONIC and TFD_CLOEXEC of timerfd_create(2)."""


class _Time(ctypes.Structure):
    """A struct timespec of timespec(3type)."""

    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Timer(ctypes.Structure):
    """A struct itimerspec: every so often, first after so long."""

    _fields_ = (("every", _Time), ("first", _Time))


_libc = ctypes.PyDLL(None, use_errno=True)
"""Called with the interpreter's lock: letting go of it is what is to be avoided."""


@dataclass(slots=True)
class _Line:
    """What the thread shares with the alarm; it keeps nothing of that."""

    timer: int
    act: Callable[[], None]
    is_armed: bool = False
    is_over: bool = False
    soon: Any = field(default_factory=lambda: ctypes.byref(_Timer(_Time(0, 0), _Time(0, _LATER))))

    def arm(self) -> None:
        """See Alarm."""
        if not self.is_armed and not self.is_over:
            self.is_armed = True
            _libc.timerfd_settime(self.timer, 0, self.soon, None)

    def put_off(self) -> None:
        """See Alarm."""
        if self.is_armed and not self.is_over:
            _libc.timerfd_settime(self.timer, 0, self.soon, None)

    def end(self) -> None:
        """Let the thread end, which closes the timer."""
        if not self.is_over:
            self.is_over = True
            _libc.timerfd_settime(self.timer, 0, ctypes.byref(_Timer(_Time(0, 0), _Time(0, 1))), None)


class Alarm:
    """Calls something from a thread of its own, a moment after each `arm`; it ends with this object.

    Parameters
    ----------
    act
        What is called: once for all that armed it in between. It must not hold the alarm, and raises nothing.
    """

    def __init__(self, act: Callable[[], None]) -> None:
        timer = int(_libc.timerfd_create(_MONOTONIC, _CLOEXEC))
        if timer < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._line = _Line(timer, act)
        self.arm: Callable[[], None] = self._line.arm
        """Let it be called in a moment; takes no lock, lets go of none, and may be called by a finaliser."""
        self.put_off: Callable[[], None] = self._line.put_off
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
        os.read(line.timer, 8)
        if line.is_over:
            os.close(line.timer)
            return
        line.is_armed = False
        line.act()


def _end(line: _Line, pid: int) -> None:
    if os.getpid() == pid:  # a forked child has no such thread, and its parent's timer
        line.end()
