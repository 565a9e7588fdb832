"""bench/engine.py: its figures are made of what happened, and its verdicts of the figures."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest
import torch

from bench import engine
from bench.engining.messages import received_bytes
from bench.engining.world import Way, worlds
from bench.harness.findings import at_least, at_most
from tests.support import processes


def _children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def test_goals_are_met_or_short_by_the_median() -> None:
    """One round among three that is disturbed changes nothing."""
    assert at_least("speed", 1.7, (1.7, 1.9, 0.8)).is_met
    assert not at_least("speed", 1.7, (1.6, 1.9, 0.8)).is_met
    assert at_most("time", 1.03, (1.03, 0.9, 2.0)).is_met
    assert not at_most("time", 1.03, (1.04, 0.9, 2.0)).is_met


@pytest.mark.long
def test_what_is_planned_holds_every_halo() -> None:
    """Three convolutions read one plane of the other block; what moves to fewer ranks is no more than halves."""
    planes = 4 * 32**2 + 32 * 16**2 + 64 * 8**2
    halves = (128 * 8**3 + 128 * 4**3) // 2
    received = received_bytes(32, 2, itemsize=4)
    assert 4 * planes <= min(received)
    assert max(received) <= 4 * (planes + halves)


def test_without_a_gpu_there_is_no_measurement(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command says what it lacks, and ends with the status of a wrong call."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as caught:
        engine.main(["--device", "cuda"])
    assert caught.value.code == 2
    assert "found no GPU" in capsys.readouterr().err


@pytest.mark.long
def test_a_small_run_tells_what_it_saw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real ranks take turns, predict the same, receive what was planned, and leave nothing behind."""
    folder, out = tmp_path / "folder", tmp_path / "engine.json"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    before = _children()
    words = "--size 32 --rounds 1 --steps 1 --joins pad --only two-ranks,memory,hidden"
    status = engine.main([*words.split(), "--json", str(out)])
    document = json.loads(out.read_text())
    goals = {goal["name"]: goal for goal in document["goals"]}
    assert status == int(not all(goal["is_met"] for goal in goals.values()))
    assert goals["memory: 2 ranks, pad: saved to one process"]["is_met"]
    for measured in document["measured"].values():
        assert measured["wrong"] == []
    runs = document["measured"]["two-ranks"]["figures"]["runs"]
    assert all(run["seconds"] > 0 for each in runs.values() for run in each)
    alone = document["measured"]["hidden"]["figures"]["2"]["alone"]
    assert all(answer["seconds"] > 0 for each in alone.values() for answer in each)
    assert _children() == before
    assert list(folder.glob("voxload-*")) == []


@pytest.mark.long
def test_a_rank_that_fails_is_told_of() -> None:
    """By its own words; nothing is left of it."""
    before = _children()
    with (
        worlds(32, "cpu", limit=processes.LIMIT) as running,
        pytest.raises(RuntimeError, match=r"(?s)1 ranks, weigh .*: a child has ended .*KeyError: 'pigeons'"),
    ):
        running.of(1).ask("weigh", Way("pigeons"))
    assert _children() == before
