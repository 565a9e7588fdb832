"""Members: who is there, by real schedulers and stores, and by whatever somebody writes there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support import processes
from voxload.errors import DataError, StorageError, UsageError
from voxload.serve.ring.members import PATIENCE, DaskMeeting, Meeting, Member, Roll, StoreMeeting, meeting_at

ROOT = Path(__file__).parents[3]
STORE = """
import sys, torch.distributed as d
store = d.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
print(store.port, flush=True)
sys.stdin.read()
"""


def test_who_says_nothing_more_is_gone() -> None:
    """By the clock of who looks; who is silent and then speaks is back."""
    roll = Roll()
    one, other = Member("tcp://a:1", "x", 0), Member("tcp://b:1", "y", 0, reads=False)
    assert roll.hear({"a": one.encode(), "b": other.encode()}, 0.0) == {"a": one, "b": other}
    later, back = Member("tcp://a:1", "x", 1), Member("tcp://b:2", "z", 0)
    assert roll.hear({"a": later.encode(), "b": other.encode()}, PATIENCE) == {"a": later}
    assert roll.hear({"a": later.encode(), "b": back.encode()}, PATIENCE) == {"a": later, "b": back}
    assert roll.hear({}, PATIENCE) == {}


@pytest.mark.parametrize(
    "text", ["", "x", "{}", "[]", '["a", "b"]', '["a", "b", "c", true]', '["a", "b", 1]', "[1, 2, 3, true]", "[" * 1000]
)
def test_nonsense_is_nobody(text: str) -> None:
    """Whoever writes it."""
    with pytest.raises(DataError, match="place, life and beat"):
        Member.decode(text)
    assert Roll().hear({"a": text}, 0.0) == {}


@pytest.fixture
def store() -> Iterator[str]:
    """Yield where a store of torch listens."""
    command = [sys.executable, "-c", STORE]
    with processes.started(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        yield f"torch:127.0.0.1:{process.stdout.readline().strip()}"


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[str]:
    """Yield where a scheduler of Dask listens."""
    environment = {**os.environ, "DASK_TEMPORARY_DIRECTORY": str(tmp_path)}
    program = "from distributed.cli.dask_scheduler import main; main()"
    options = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
    command = [sys.executable, "-c", program, *options]
    with processes.started(command, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "Scheduler at:" in line:
                yield "dask:" + line.split()[-1]
                return
        raise AssertionError("no scheduler")


def meets(one: Meeting, other: Meeting) -> None:
    """Assert that what one says the other hears."""
    with closing(one), closing(other):
        assert one.heard() == {}
        one.say("a", "first")
        other.say("b", "word")
        one.say("a", "second")
        assert dict(one.heard()) == dict(other.heard()) == {"a": "second", "b": "word"}
        other.leave("b")
        assert dict(one.heard()) == {"a": "second"}


@pytest.mark.long
def test_a_store_of_torch(store: str) -> None:
    """As a launcher's rendezvous has one."""
    meets(meeting_at(store), meeting_at(store))


@pytest.mark.long
def test_a_scheduler_of_dask(scheduler: str) -> None:
    """As a site's standing cluster has one."""
    meets(meeting_at(scheduler), meeting_at(scheduler))


@pytest.mark.long
def test_nobody_answers() -> None:
    """Which is said in bounded time."""
    with pytest.raises(StorageError, match="a store of torch that answers"):
        StoreMeeting("127.0.0.1", 1)
    with pytest.raises(StorageError, match="a scheduler of Dask that answers"):
        DaskMeeting("tcp://127.0.0.1:1")


@pytest.mark.parametrize("text", ["", "dask:", "dask:host:1", "torch:host", "torch:host:x", "zookeeper:host:1"])
def test_places_that_are_none(text: str) -> None:
    """Are refused, with what is meant."""
    with pytest.raises(UsageError, match="dask:tcp://SCHEDULER:PORT or torch:HOST:PORT"):
        meeting_at(text)
