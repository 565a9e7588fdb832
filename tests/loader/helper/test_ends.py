"""The process ends with its loader's, however that ends, and with nobody else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import voxload
from tests.support import processes

_PROGRAM = """
    import os, signal, sys, time
    import voxload

    data = voxload.VolumeDataset(sys.argv[1], fields={"x": "full"}, axes="DHWC")
    loader = voxload.DataLoader(data, 1, readers="process")
    batches = iter(loader)
    next(batches)
    state = loader._pipeline._ahead.reads._others._state
    assert state.ready.wait(60)
"""


def _program(body: str) -> str:
    return textwrap.dedent(_PROGRAM) + textwrap.dedent(body)


def test_it_ends_with_a_process_that_was_killed(folder: Path) -> None:
    """Also where a child of that holds its ends of the sockets open."""
    body = """
        child = os.fork()
        if not child:
            signal.pause()
        print(state.process.pid, child, flush=True)
        signal.pause()
    """
    command = [sys.executable, "-c", _program(body), f"{folder}/*.h5"]
    with processes.started(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        helper, child = map(int, program.stdout.readline().split())
        processes.keep(child)
        os.kill(program.pid, signal.SIGKILL)
        program.wait(processes.LIMIT)
        assert processes.ended({helper}, patience=processes.LIMIT) == set()
        os.kill(child, signal.SIGKILL)


@pytest.mark.long
def test_a_program_ends_with_it_at_work(folder: Path) -> None:
    """Nothing is said, the status is 0, and no process is left; an interruption is the program's alone."""
    body = """
        os.kill(state.process.pid, signal.SIGINT)
        print(state.process.pid, len(list(loader)), flush=True)
    """
    found = processes.run([sys.executable, "-c", _program(body), f"{folder}/*.h5"], capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (0, "")
    helper, batches = map(int, found.stdout.split())
    assert batches == len(voxload.VolumeDataset(f"{folder}/*.h5", fields={"x": "full"}, axes="DHWC"))
    assert processes.ended({helper}, patience=processes.LIMIT) == set()


@pytest.mark.long
def test_a_forked_child_has_nothing_of_it(folder: Path) -> None:
    """Its loader begins a process of its own, and its end leaves the first one alone."""
    body = """
        import warnings
        warnings.simplefilter("ignore")
        child = os.fork()
        if not child:
            del batches
            first = len(list(loader))
            own = loader._pipeline._ahead.reads._others._state.process.pid
            loader.close()
            os._exit(0 if first == len(data) and own != state.process.pid else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert len(list(loader)) == len(data)
        assert state.ready.is_set() and state.process is not None
        print(state.process.pid)
        loader.close()
    """
    found = processes.run([sys.executable, "-c", _program(body), f"{folder}/*.h5"], capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (0, "")
    assert processes.ended({int(found.stdout)}, patience=processes.LIMIT) == set()
