"""Plugins: filters that only a plugin of libhdf5 decodes, allowed by name and run in a process of their own.

Damage ends or hangs some of these plugins, and others make voxels of it that nobody can tell from right ones. So none
runs unless its user names it, and none runs in the process that reads.
"""

from __future__ import annotations

import atexit
import os
import select
import struct
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from voxload.errors import UsageError
from voxload.readers.scratch import Bytes, scratch

ALLOWED = "VOXLOAD_HDF5_PLUGINS"
"""The variable of the environment that names the plugins that may run, with commas between them."""
NAMES = {32013: "zfp", 32017: "sz", 32018: "fcidecomp", 32024: "sz3", 32028: "sperr", 32033: "htj2k"}
"""Filters by their registered number."""
REQUEST = struct.Struct("<IIQQ")
"""Number of the filter, of its parameters and of the stored bytes, and how many bytes must come of them."""
REPLY = struct.Struct("<BQ")
"""Whether it failed, and the length of the bytes, or of the message, that follow."""
SECONDS = 60.0
"""Longest time for one chunk, and a second more for each MiB of it."""
_MESSAGE_BYTES = 2**16
_PIECE = 2**20


def allowed() -> frozenset[str]:
    """Return the names of the plugins that the environment allows.

    Raises
    ------
    UsageError
        When it names one that there is not.
    """
    names = frozenset(name.strip().lower() for name in os.environ.get(ALLOWED, "").split(",") if name.strip())
    unknown = sorted(names - set(NAMES.values()))
    if unknown:
        raise UsageError(ALLOWED, found=f"{', '.join(unknown)}", expected=f"some of {', '.join(NAMES.values())}")
    return names


@dataclass(frozen=True, slots=True)
class Plugin:
    """One filter of a plugin that is allowed."""

    number: int
    """Its registered number."""
    values: tuple[int, ...]
    """Its parameters."""
    grows: int | None = None

    def undo(self, data: Bytes, size: int) -> Bytes:
        """Return what the plugin makes of `data`, in this thread's scratch.

        Raises
        ------
        ValueError
            When the plugin fails, ends, takes too long, or gives another number of bytes than `size`.
        """
        request = REQUEST.pack(self.number, len(self.values), len(data), size)
        parameters = struct.pack(f"<{len(self.values)}I", *self.values)
        out = scratch.decoded(size)
        _helper.decode(NAMES[self.number], [memoryview(request), memoryview(parameters), data.data], out)
        return out


class Helper:
    """The process that runs plugins: started when it is first wanted, and again after it was ended.

    Safe to use from many threads; they wait for one another. It ends with this process, or when that closes its pipe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def decode(self, name: str, request: list[memoryview], out: Bytes) -> None:
        """Send a request and receive its answer into `out`; raises ValueError, as `Plugin.undo` says."""
        with self._lock:
            process = self._running()
            deadline = time.monotonic() + SECONDS + out.size / 2**20
            try:
                self._exchange(process, request, out, deadline)
            except _RefusedError as error:  # the plugin's own, after which it goes on
                raise ValueError(f"{name}: {error}") from error
            except TimeoutError as error:
                self._end()
                raise ValueError(f"plugin {name} that ran longer than {SECONDS:.0f} s") from error
            except OSError as error:
                self._end()
                raise ValueError(f"plugin {name} that ended with status {process.returncode}") from error
            except BaseException:  # half an answer may be in the pipe
                self._end()
                raise

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            self._end()
        if self._process is None:
            script = Path(__file__).with_name("pluginprocess.py")
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(script)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
            )
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    os.set_blocking(pipe.fileno(), False)
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    def _exchange(
        self, process: subprocess.Popen[bytes], request: list[memoryview], out: Bytes, deadline: float
    ) -> None:
        if process.stdin is None or process.stdout is None:
            raise BrokenPipeError
        for part in request:
            _send(process.stdin.fileno(), part, deadline)
        head = bytearray(REPLY.size)
        _receive(process.stdout.fileno(), memoryview(head), deadline)
        has_failed, length = REPLY.unpack(head)
        if has_failed:
            message = bytearray(min(length, _MESSAGE_BYTES))
            _receive(process.stdout.fileno(), memoryview(message), deadline)
            raise _RefusedError(message.decode(errors="replace"))
        if length != out.size:
            raise BrokenPipeError
        _receive(process.stdout.fileno(), out.data, deadline)


class _RefusedError(Exception):
    """The helper's answer that a chunk cannot be decoded."""


def _send(pipe: int, data: memoryview, deadline: float) -> None:
    done = 0
    while done < len(data):
        _wait(pipe, select.POLLOUT, deadline)
        try:
            done += os.write(pipe, data[done : done + _PIECE])
        except BlockingIOError:
            continue


def _receive(pipe: int, into: memoryview, deadline: float) -> None:
    done = 0
    while done < len(into):
        _wait(pipe, select.POLLIN, deadline)
        try:
            count = os.readv(pipe, [into[done : done + _PIECE]])
        except BlockingIOError:
            continue
        if not count:
            raise BrokenPipeError
        done += count


def _wait(pipe: int, events: int, deadline: float) -> None:
    """Wait until a pipe can be used; raises TimeoutError."""
    poll = select.poll()
    poll.register(pipe, events)
    if not poll.poll(max(deadline - time.monotonic(), 0) * 1000):
        raise TimeoutError


_helper = Helper()


def _close() -> None:
    _helper.close()


atexit.register(_close)


def _forget() -> None:
    """Start afresh in a forked child: the helper, its pipes and the lock are its parent's."""
    global _helper
    old, _helper = _helper._process, Helper()  # noqa: SLF001 - of its own class
    if old is not None:
        for pipe in (old.stdin, old.stdout):
            if pipe is not None:
                pipe.close()
        old.returncode = 0  # not its child: nothing to wait for


os.register_at_fork(after_in_child=_forget)
