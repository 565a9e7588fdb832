"""ReaderProcess: one helper process: begun, told, heard, ended.

Rules of this file:

1. It is a new interpreter: a fork would inherit locks that threads hold. It is told where modules are found, and gets
   the data set as a message; what the program's own file defines is not there.
2. It ends when the loader's end of the sockets is closed, or the loader's process ends, however that happens.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle

from voxload.loader.helper.messages import Answer, Order

_START = "import json,sys; sys.path[:]=json.loads(sys.argv[2]); from voxload.loader.helper.main import main; main()"
_GRACE = 5.0
"""Seconds in which a process that was told to end does so mostly; a read that hangs may keep it."""


class ReaderProcess:
    """A helper; one thread hears it, any may tell it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined] # noqa: SLF001 - as multiprocessing does
            command = [sys.executable, *flags, "-c", _START, str(theirs.fileno()), json.dumps(sys.path)]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        self._connection = Connection(ours.detach())
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    def tell(self, order: Order, *, file: int | None = None) -> None:
        """Send an order, and a file's descriptor behind it; raises OSError where nobody is there."""
        with self._lock:
            self._connection.send(order)
            if file is not None:
                send_handle(self._connection, file, self.pid)

    def tell_bytes(self, message: bytes) -> None:
        """Send a message that was pickled before; raises OSError where nobody is there."""
        with self._lock:
            self._connection.send_bytes(message)

    def hear(self) -> Answer | None:
        """Wait for an answer; None when the process has ended."""
        try:
            answer: Answer = self._connection.recv()
        except (EOFError, OSError):
            return None
        return answer

    def end(self, *, at_once: bool) -> None:
        """Let it end, or end it; returns at once, and `hear` then returns None."""
        if at_once:
            self._process.kill()
        with suppress(OSError), socket.socket(fileno=os.dup(self._connection.fileno())) as own:
            own.shutdown(socket.SHUT_RDWR)

    def reap(self) -> str:
        """Wait until it has ended, and close what is left of it; return how it ended, for people. After `hear`."""
        try:
            code = self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._connection.close()
        if code < 0:
            return f"ended by signal {-code} ({signal.Signals(-code).name})"
        return f"ended with status {code}"
