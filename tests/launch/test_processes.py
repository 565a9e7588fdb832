"""Ranks as processes: what they say is heard, and how they end is told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import processes
from tests.support.launches import fork_launches
from voxload.errors import DataError, InternalError, UsageError
from voxload.launch.processes import _follow, launch_ranks

RANK = """
import os, sys, warnings
from datetime import timedelta
import torch, torch.distributed as dist
from tests.support.sockets import listening
from voxload.errors import DataError
from voxload.launch.rendezvous import process_group
from voxload.launch.processes import emit, run_rank

def work(plan):
    rank = int(os.environ["RANK"])
    emit({"event": "here", "rank": rank, "plan": plan})
    if plan == "warn":
        with process_group(rank, 2, timeout=timedelta(minutes=10)):
            dist.all_reduce(torch.ones(1))
            emit({"event": "listens", "at": sorted(listening([os.getpid(), os.getppid()]))})
            dist.barrier()
    if plan == "warn" and rank == 1:
        warnings.warn("no disk", RuntimeWarning)
    if plan == "broken" and rank == 1:
        raise DataError("chunk 7", found="nothing")
    if plan == "die":
        print("last words", file=sys.stderr, flush=True)
        os._exit(3)

sys.exit(run_rank("rank", sys.argv[1:], work))
"""


def test_the_first_error_counts_and_no_word_of_a_library() -> None:
    """Progress and warnings are passed on; what libraries print is not taken for ours."""
    seen: list[dict[str, Any]] = []
    lines = ["[1]\n", "words\n", '{"event": "begin", "samples": 2}', '{"event": "warning", "message": "no disk"}', "{}"]
    with pytest.warns(RuntimeWarning, match="no disk"):
        assert _follow(lines, seen.append) is None
    assert seen == [{"event": "begin", "samples": 2}]
    lines = [json.dumps({"event": "error", "is_usage": True, "message": word}) for word in ("first", "second")]
    found = _follow(lines, seen.append)
    assert isinstance(found, UsageError)
    assert str(found) == "first"


@pytest.mark.parametrize("ranks", ["forked", pytest.param("launched", marks=pytest.mark.long)])
def test_ranks_that_run_fail_and_die(ranks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes are heard; an error of one comes out as itself, a death with the last line that was written."""
    (tmp_path / "a_rank.py").write_text(RANK)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    monkeypatch.setenv("PET_STANDALONE", "1")  # a word to torchrun, for its own rendezvous
    seen: list[dict[str, Any]] = []
    with pytest.warns(RuntimeWarning, match="no disk"):
        launch_ranks("a_rank", "warn", processes=2, subject="a test", hear=seen.append)
    here = [event for event in seen if event["event"] == "here"]
    assert sorted(event["rank"] for event in here) == [0, 1]
    assert {event["plan"] for event in here} == {"warn"}
    places = {(host, port) for event in seen if event["event"] == "listens" for host, port in event["at"]}
    assert len(places) >= 3  # the store, and gloo of either rank
    assert {host for host, _ in places} == {"127.0.0.1"}  # a stranger on the network reaches none of them
    name = "a_rank"
    if ranks == "forked":
        fork_launches(monkeypatch)
        name = str(tmp_path / "a_rank.py")
    with pytest.raises(InternalError, match=r"a test: found a process that died: .+"):
        launch_ranks(name, "die", processes=1, subject="a test", hear=seen.append)
    with pytest.raises(DataError, match="chunk 7: found nothing"):
        launch_ranks(name, "broken", processes=2, subject="a test", hear=seen.append)


LAUNCHER = """
import sys
from voxload.launch.processes import launch_ranks
launch_ranks("endless", sys.argv[1], processes=2, subject="a test", hear=lambda event: print(event["pid"], flush=True))
"""
ENDLESS = """
import os, signal, sys
from voxload.launch.processes import emit, run_rank

def work(plan):
    assert sys.stdin.read() == ""  # the pipe that torchrun watches is not this rank's
    emit({"event": "here", "pid": os.getpid()})
    while True:
        signal.pause()

sys.exit(run_rank("rank", sys.argv[1:], work))
"""


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_ranks_end_with_who_launched_them(number: signal.Signals, tmp_path: Path) -> None:
    """Nothing of a run outlives it, though nobody is left to end it: not torchrun, and no rank that holds a GPU."""
    (tmp_path / "endless.py").write_text(ENDLESS)
    # The plan's file outlives a process that is killed: in the folder of this test.
    words = {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", LAUNCHER, "on and on"]
    with processes.started(command, stdout=subprocess.PIPE, text=True, env=os.environ | words) as launcher:
        ranks = {int(launcher.stdout.readline()) for _ in range(2)}  # type: ignore[union-attr]
        below = processes.descendants(launcher.pid)
        assert ranks < below
        launcher.send_signal(number)
        assert launcher.wait() == -number
        assert not processes.ended(below, patience=processes.LIMIT)
