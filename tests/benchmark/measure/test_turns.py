"""Turns: everyone is first once, rounds that others disturb are repeated, and ratios are those of a round."""

from __future__ import annotations

import subprocess
import sys
import time
from itertools import chain, repeat

import pytest

from tests.support import processes
from voxload.benchmark.measure import turns
from voxload.benchmark.measure.turns import Bystanders, Turns, in_turns, rotated, timed


def test_another_one_is_first_in_each_round() -> None:
    """And all others follow it in their order."""
    asked: list[str] = []

    def run(name: str) -> int:
        asked.append(name)
        return len(asked)

    found = in_turns("abc", 4, run)
    assert "".join(asked) == "abcbcacababc"
    assert found.results == {"a": (1, 6, 8, 10), "b": (2, 4, 9, 11), "c": (3, 5, 7, 12)}
    assert len(found.others) == 4
    assert [rotated(range(2), turn) for turn in (0, 1, 2)] == [(0, 1), (1, 0), (0, 1)]


def test_rounds_that_others_disturb_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """For as long as there is patience; they count as none, and the same one is first again."""
    cores = chain([0.0, turns.QUIET * 2, 0.0, 0.0, 0.0], repeat(turns.QUIET / 2))
    monkeypatch.setattr(turns, "_GLANCE", 0)
    monkeypatch.setattr(Bystanders, "cores", lambda _: next(cores))
    asked: list[str] = []
    found = in_turns("ab", 2, asked.append, patience=3600)
    assert "".join(asked) == "ababba"
    assert (found.repeated, found.others) == (1, (0.0, turns.QUIET / 2))


def test_rounds_follow_until_there_are_enough() -> None:
    """Not before there are as many as were asked for; the turns so far are there to decide by."""
    seen: list[dict[str, tuple[int, ...]]] = []

    def is_enough(found: Turns[str, int]) -> bool:
        seen.append(found.results)
        return len(found.others) == 4

    found = in_turns("ab", 3, ord, is_enough=is_enough)
    assert seen == [{"a": (97,) * times, "b": (98,) * times} for times in (3, 4)]
    assert found.results == seen[-1]
    assert in_turns("", 2, ord).others != ()


def test_without_patience_disturbed_rounds_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """What others used is told."""
    monkeypatch.setattr(Bystanders, "cores", lambda _: 1.5)
    assert in_turns([1], 2, float).others == (1.5, 1.5)


def test_figures_are_taken_round_by_round() -> None:
    """A ratio compares what ran in the same round; the error is that of quartiles."""
    found = Turns({"one": ("a", "bb", "cccc"), "two": ("aa", "b", "cc")}, ()).figures(len)
    assert found.ratios("one", "two") == (0.5, 2.0, 2.0)
    assert found.median("one") == 2
    assert found.error("one") == pytest.approx(1.2533 * 1.5 / 1.349 / 3**0.5)
    assert Turns({"one": (1.0, 1.0, 9.0, 1.0, 1.0)}, ()).error("one") == 0


def test_calls_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that each call moves on."""
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    def work() -> None:
        clock[0] += 1 + clock[0]

    found = timed({"work": work, "nothing": lambda: None}, 3).results
    assert found == {"work": (1.0, 2.0, 4.0), "nothing": (0.0, 0.0, 0.0)}


def test_children_that_end_meanwhile_are_no_bystanders() -> None:
    """What they used was waited for by then."""
    with processes.started([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        bystanders = Bystanders()
    assert process.returncode is not None
    assert bystanders.cores() >= 0
