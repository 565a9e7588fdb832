"""Scripts in processes of their own, forked from one that has imported what they need.

Python takes a second of a core and more to import what a conversion needs. To a script all looks as ``python -c`` makes
it. It becomes a child of the tests' process, which takes what loses its parent (`tests.support.processes.adopt`).

    python -m tests.support.scripts DESCRIPTOR       forks what it is told over that socket
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from tests.support import processes

ROOT = Path(__file__).parents[2]
_ARROWS = "jemalloc_bg_thd"
"""A thread that pyarrow's allocator begins when it is imported, and stops around a fork by itself."""
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Where a library's threads were there, there could be no fork."""
_LONGEST = 2**17
"""Bytes of a request."""
CONVERT = ("voxload.convert",)
"""What most scripts import."""


class Script:
    """A script that was started, with pipes to its standard input and output."""

    def __init__(self, pid: int, stdin: TextIO, stdout: TextIO) -> None:
        self.pid = pid
        self.stdin = stdin
        self.stdout = stdout
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return how it ended, None before that."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self) -> int:
        """Wait for its end, and return how that was: as `subprocess` has it, below 0 for a signal."""
        if self.returncode is None:
            handle = os.pidfd_open(self.pid)
            try:
                is_there, _, _ = select.select([handle], [], [], processes.LIMIT)
                assert is_there, f"process {self.pid} hangs"
            finally:
                os.close(handle)
        status = self.poll()
        assert status is not None
        return status

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it, and nothing that it started."""
        self.send_signal(signal.SIGKILL)


@contextlib.contextmanager
def started(
    script: str,
    *arguments: str | Path,
    imports: Sequence[str] = CONVERT,
    cwd: str | Path = ROOT,
    environ: Mapping[str, str] | None = None,
) -> Iterator[Script]:
    """Start a script; it is killed with all that it started when the block ends. What it says of errors is no news."""
    ours, theirs = os.pipe(), os.pipe()
    with contextlib.ExitStack() as stack:
        stdin = stack.enter_context(os.fdopen(ours[1], "w"))
        stdout = stack.enter_context(os.fdopen(theirs[0]))
        stack.callback(_close_unless_broken, stdin)
        with os.fdopen(ours[0], "rb") as given, os.fdopen(theirs[1], "wb") as told, Path(os.devnull).open("wb") as none:
            pid = _forker().fork((given, told, none), script, arguments, imports=imports, cwd=cwd, environ=environ)
        process = Script(pid, stdin, stdout)
        try:
            yield process
        finally:
            if process.poll() is None:
                processes.end(processes.descendants(pid) | {pid})
            process.wait()


def run(
    script: str,
    *arguments: str | Path,
    imports: Sequence[str] = CONVERT,
    cwd: str | Path = ROOT,
    environ: Mapping[str, str] | None = None,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run a script to its end; nothing that it started outlives this call."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors, Path(os.devnull).open("rb") as none:
        pid = _forker().fork((none, out, errors), script, arguments, imports=imports, cwd=cwd, environ=environ)
        process = Script(pid, sys.stdin, sys.stdout)
        try:
            status = process.wait()
        finally:
            if process.poll() is None:
                processes.end(processes.descendants(pid) | {pid})
                process.wait()
        texts = []
        for file in (out, errors):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    assert not (check and status), f"{status}\n{texts[0][-3000:]}\n{texts[1][-3000:]}"
    return subprocess.CompletedProcess(["-c", *map(str, arguments)], status, *texts)


def _close_unless_broken(pipe: TextIO) -> None:
    with contextlib.suppress(BrokenPipeError):
        pipe.close()


class _Forker:
    """The process that forks; one for each process of tests, from its first script until its end."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(processes.LIMIT)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.scripts", str(theirs.fileno())],
                cwd=ROOT,
                env=os.environ | _ONE_THREAD,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        processes.keep(self._process.pid)
        Finalize(None, self.close, exitpriority=10)

    def fork(
        self,
        files: tuple[BinaryIO, BinaryIO, BinaryIO],
        script: str,
        arguments: Sequence[str | Path],
        *,
        imports: Sequence[str],
        cwd: str | Path,
        environ: Mapping[str, str] | None,
    ) -> int:
        """Start a script with such standard files; return its number."""
        words = {
            "script": script,
            "arguments": [str(word) for word in arguments],
            "imports": list(imports),
            "cwd": str(cwd),
            "environ": dict(os.environ if environ is None else environ) | _ONE_THREAD,
        }
        request = json.dumps(words).encode()
        assert len(request) < _LONGEST
        try:
            socket.send_fds(self._socket, [request], [file.fileno() for file in files])
            answer = self._socket.recv(_LONGEST)
            assert answer, "the process that forks scripts has ended"
        except BaseException:
            self.close()
            raise
        return int(answer)

    @property
    def is_alive(self) -> bool:
        """Whether it forks still."""
        return self._process.poll() is None

    def close(self) -> None:
        """End it; scripts are no children of it."""
        if self.is_alive:
            self._process.kill()
        self._process.wait()
        self._socket.close()


_made: list[_Forker] = []


def _forker() -> _Forker:
    if not _made or not _made[-1].is_alive:
        _made.append(_Forker())
    return _made[-1]


def _serve(told: socket.socket) -> None:
    """Fork one script after the other; in a script this does not return."""
    # A script leaves by the interpreter's own end, through the frames of this function: nothing here is to be undone.
    while True:
        request, descriptors, _, _ = socket.recv_fds(told, _LONGEST, 3)
        if not request:
            return
        words = json.loads(request)
        for name in words["imports"]:
            importlib.import_module(name)
        gc.freeze()
        threads = [task.read_text().strip() for task in Path("/proc/self/task").glob("*/comm")]
        assert sum(name != _ARROWS for name in threads) == 1, f"threads beside a fork: {threads}"
        number, numbers = os.pipe()
        between = os.fork()
        if not between:
            pid = os.fork()
            if not pid:
                told.close()
                os.close(number)
                os.close(numbers)
                _be(words, descriptors)
                sys.exit()
            os.write(numbers, str(pid).encode())
            os._exit(0)
        os.close(numbers)
        for descriptor in descriptors:
            os.close(descriptor)
        os.waitpid(between, 0)  # from now on the script is a child of the tests' process
        told.send(os.read(number, 64))
        os.close(number)


def _be(words: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """Be a script: with its environment, its standard files, and a main module of its own."""
    os.setsid()
    for standard, descriptor in enumerate(descriptors):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(words["environ"])
    os.chdir(words["cwd"])
    tempfile.tempdir = None
    sys.argv = ["-c", *words["arguments"]]
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    exec(compile(words["script"], "<string>", "exec"), main.__dict__)  # noqa: S102 - as python -c does


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
