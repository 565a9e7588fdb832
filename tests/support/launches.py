"""What commands start in processes of torchrun, forked instead: for tests of what is said, not of who starts whom.

torchrun and each of its ranks import torch: six seconds of a core and more for a launch. All else of
`voxload.launch.processes` stays as it is: the plan's file, the environment, what is heard, and the error of a death.

    python -m tests.support.launches FOLDER MODULE [ARGUMENT ...]        is a rank: runs a module in a folder
"""

from __future__ import annotations

import io
import os
import runpy
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TextIO
from unittest import mock

import pytest

from tests.support.ranks import run_ranks
from voxload.launch import processes as launching


class _Forked:
    """Stands for `subprocess.Popen` of a launcher: its ranks have ended when it is made."""

    pid = -1

    def __init__(self, command: Sequence[str], *, stderr: TextIO, env: Mapping[str, str], **_others: object) -> None:
        _, _, runner, held, processes, _, module, plan = command
        assert (runner, held) == ("voxload.launch.torchrun", "--end-with-input")
        with mock.patch.dict(os.environ, env, clear=True):
            ended = run_ranks(
                "tests.support.launches", Path.cwd(), module, plan, ranks=int(processes.partition("=")[2])
            )
        self.stdin = None
        self.stdout = io.StringIO("".join(rank.out for rank in ended))
        self._status = int(any(rank.status for rank in ended))
        stderr.write("".join(rank.errors for rank in ended))
        stderr.flush()

    def wait(self) -> int:
        """Return 1 where a rank failed."""
        return self._status

    poll = wait


def fork_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let whatever launches ranks in this process fork them, until the test ends."""
    words = {"Popen": _Forked, "PIPE": subprocess.PIPE, "TimeoutExpired": subprocess.TimeoutExpired}
    monkeypatch.setattr(launching, "subprocess", SimpleNamespace(**words))


def _be_rank() -> None:
    """Run a module, or a script, in the folder of whoever launched it."""
    _, folder, module, *arguments = sys.argv
    os.chdir(folder)
    sys.argv = [module, *arguments]
    if module.endswith(".py"):
        runpy.run_path(module, run_name="__main__")
    else:
        runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _be_rank()
