"""The scripts' harness: tables, exit statuses, and processes that answer until they are told that it is enough."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.harness import children, script
from tests.support import processes


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table."""

    name: str
    all_counts: int
    seconds: float | None
    is_small: bool

    @property
    def rate(self) -> float:
        """Of the counts."""
        return self.all_counts / (self.seconds or float("nan"))


ROWS = (Row("4x", 1200, 1.53171, is_small=False), Row("none", 3, None, is_small=True))


def test_numbers_stand_to_the_right_and_faults_are_marked() -> None:
    """What is neither text nor number has no column."""
    assert script.table(ROWS, lambda row: row.is_small).splitlines() == [
        "name  all counts  seconds   rate",
        "4x         1,200    1.532  783.4  OFF",
        "none           3        -    nan",
    ]


@pytest.mark.parametrize(("limit", "status"), [(5, 1), (5000, 0)])
def test_the_exit_status_says_whether_all_is_right(capsys: pytest.CaptureFixture[str], limit: int, status: int) -> None:
    """With JSON, too, which holds what follows from the fields."""
    for is_json in (True, False):
        words = argparse.Namespace(json=is_json)
        assert script.finish(words, ROWS[:1], lambda row: row.all_counts < limit) == status
    printed = capsys.readouterr().out
    (found,) = json.loads(printed[: printed.index("name  all")])
    assert found == {
        "name": "4x",
        "all_counts": 1200,
        "seconds": 1.53171,
        "is_small": False,
        "rate": pytest.approx(1200 / 1.53171),
        "is_right": not status,
    }


def test_options_are_those_that_were_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """A number of none is refused."""
    parser = script.parser("A claim.", folder="samples", rounds=7)
    assert vars(parser.parse_args([])) == {"folder": None, "rounds": 7, "json": False}
    with pytest.raises(SystemExit, match="2"):
        parser.parse_args(["--rounds", "0"])
    assert "a number of 1 or more" in capsys.readouterr().err


def adding(start: int, path: str) -> Callable[[int], list[int]]:
    """Return what adds a number to all before, and tells who it is; a file says that it was made ready."""
    found = [start, os.getpid()]
    Path(path).touch()

    def add(number: int) -> list[int]:
        sys.stdout.write("a library's own words\n")  # which are no answer
        found[0] += number
        return found

    return add


def test_a_child_answers_and_ends(tmp_path: Path) -> None:
    """It is ready when it is there, keeps what it has, and lives no longer than its block."""
    place = tmp_path / "ready"
    with children.started("tests.bench.test_harness:adding", 5, str(place)) as child:
        assert place.exists()
        assert child.ask(2) == [7, child.pid]
        child.send(3)
        while not child.has_answered():
            assert child.figure("status", "Pid") == child.pid
        assert child.answer() == [10, child.pid]
    assert child.pid not in processes.descendants()


def opening(path: str) -> Callable[[], str]:
    """Return what answers, once somebody has written to a pipe."""
    text = Path(path).read_text()
    return lambda: text


def test_an_answer_that_does_not_come_in_time_is_no_answer(tmp_path: Path) -> None:
    """It can be waited for again."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with children.begun("tests.bench.test_harness:opening", str(pipe), variables={"KNOWN": "1"}) as child:
        with pytest.raises(TimeoutError, match="no answer in time"):
            child.answer(0.01)
        pipe.write_text("words")
        assert child.answer(processes.LIMIT) == "ready"
        assert child.ask() == "words"
        assert "KNOWN=1" in Path(f"/proc/{child.pid}/environ").read_text().split("\0")
    assert child.pid not in processes.descendants()


def test_a_child_that_fails_is_told_of(capfd: pytest.CaptureFixture[str]) -> None:
    """Its own message stands before."""
    with children.started("tests.bench.test_harness:adding", 5, os.devnull) as child:
        with pytest.raises(RuntimeError, match="ended with status 1"):
            child.ask("no number")
        assert "TypeError" in capfd.readouterr().err


def test_a_module_is_run_and_given_up_after_its_limit() -> None:
    """What it printed comes back; where it must succeed, a failure is an error with what it said."""
    printed, _ = children.run("json.tool", "--help", limit=processes.LIMIT)
    assert printed.startswith("usage:")
    with pytest.raises(TimeoutError, match=r"no end within 0\.001 s"):
        children.run("bench.harness.children", "signal:pause", limit=0.001)  # it never ends of itself
    printed, said = children.run("json.tool", "--strange", limit=processes.LIMIT)
    assert not printed
    assert "unrecognized arguments: --strange" in said
    with pytest.raises(RuntimeError, match=r"--strange: ended with status 2\nusage:"):
        children.run("json.tool", "--strange", limit=processes.LIMIT, must_succeed=True)
