"""Children: processes of their own that run a module, or make something ready and then answer requests.

``python -m bench.harness.children MODULE:FUNCTION WORD...``, with each word as JSON, calls the function, which makes
ready what is measured and returns what answers: a function that is given a request's words. Requests and answers are
lines of JSON; what libraries print beside them goes where errors go. Whatever ends a child, nothing that it started
outlives it.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from bench.harness.script import ROOT
from tests.support import processes

Answer = Callable[..., Any]
"""Takes a request's words, and returns what is JSON."""


class Child:
    """A process that answers; used by one thread."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.pid = process.pid
        self._process = process
        self._answers = cast("IO[str]", process.stdout)

    def ask(self, *words: Any) -> Any:
        """Send a request and return its answer."""
        self.send(*words)
        return self.answer()

    def send(self, *words: Any) -> None:
        """Send a request."""
        print(json.dumps(words), file=self._process.stdin, flush=True)

    def has_answered(self, patience: float | None = 0.0) -> bool:
        """Tell whether the answer comes within so many seconds, or at all; the child waits for a request then."""
        return bool(select.select([self._answers], [], [], patience)[0])

    def answer(self, patience: float | None = None) -> Any:
        """Wait for the answer, no longer than so many seconds where they are given.

        Raises RuntimeError when the process has ended instead, and TimeoutError when there is no answer in time.
        """
        if not self.has_answered(patience):
            raise TimeoutError("no answer in time")
        line = self._answers.readline()
        if not line:
            raise RuntimeError(f"a child has ended with status {self._process.wait()} and no answer")
        return json.loads(line)

    def end(self) -> None:
        """Tell it that there are no more requests, and wait until it has ended."""
        self._process.communicate()

    def figure(self, file: str, name: str) -> int:
        """Return a number that the system says of it: that of `name` in /proc/PID/`file`, in the unit of that file."""
        lines = Path(f"/proc/{self.pid}/{file}").read_text().splitlines()
        (found,) = (line for line in lines if line.startswith(f"{name}:"))
        return int(found.split()[1])


@contextmanager
def started(function: str, *words: Any, is_apart: bool = True) -> Iterator[Child]:
    """Start a process that answers, and yield it when it is ready.

    Parameters
    ----------
    function
        ``module:function`` that makes it ready and returns what answers.
    words
        What the function is given, as JSON has it.
    is_apart
        Whether it has a share of the cores that is not this process's.
    """
    with begun(function, *words, is_apart=is_apart) as child:
        child.answer()
        yield child
        child.end()


@contextmanager
def begun(
    function: str,
    *words: Any,
    variables: dict[str, str] | None = None,
    errors: IO[bytes] | None = None,
    is_apart: bool = True,
) -> Iterator[Child]:
    """Start a process, yield it at once, and kill it at the end; its first answer says that it is ready to answer.

    Parameters
    ----------
    function, words, is_apart
        As for `started`.
    variables
        Of its environment, beside those of this process.
    errors
        File for what it says of errors; this process's own by default.
    """
    command = [sys.executable, "-m", "bench.harness.children", function, *map(json.dumps, words)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors, "text": True}
    with processes.started(command, is_apart=is_apart, env=environ() | (variables or {}), **pipes) as process:
        yield Child(process)


def run(
    module: str, *words: str, limit: float, python: str = sys.executable, must_succeed: bool = False
) -> tuple[str, str]:
    """Run a module and return what it printed, and what it said of errors.

    Raises TimeoutError when it takes more than `limit` seconds, and RuntimeError when it `must_succeed` and fails.
    """
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with processes.started([python, "-m", module, *words], env=environ(), **pipes) as process:
        try:
            printed, said = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"no end within {limit:g} s") from None
    if must_succeed and process.returncode:
        raise RuntimeError(f"{module} {' '.join(words)}: ended with status {process.returncode}\n{said}")
    return printed, said


def environ() -> dict[str, str]:
    """Return an environment where a child finds what this process finds, in whatever folder it is."""
    places = (str(ROOT), os.environ.get("PYTHONPATH"))
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, places))}


def main(function: str, *words: str) -> None:
    """Make ready, and answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    module, name = function.split(":")
    answer: Answer = getattr(importlib.import_module(module), name)(*map(json.loads, words))
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(*json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
