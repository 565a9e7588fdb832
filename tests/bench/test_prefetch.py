"""bench/prefetch.py: its figures are made of what ranks and server said, and its verdicts of the figures."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import voxload
from bench import prefetch
from bench.harness.findings import Finding
from bench.prefetching.forecast import Forecast
from bench.prefetching.results import Row, Run, findings
from bench.prefetching.served import Tally, extents, linked
from tests.benchmark.documents import Recipe, document
from tests.support.launches import fork_launches
from voxload.benchmark.generate.generate import generate
from voxload.benchmark.generate.generated import Truth
from voxload.benchmark.generate.plan import DatasetPlan
from voxload.benchmark.generate.storage import Storage, StoreFormat
from voxload.benchmark.measure.record import Epoch, Kernel, Record, Steps
from voxload.benchmark.measure.turns import Turns
from voxload.geometry import Box
from voxload.readers.store import is_url

_ONCE = Tally(requests=9, data_bytes=1000, other_bytes=0, least=1, most=1)
_FORECAST = Forecast(seconds=10.0, epochs=(6.0, 4.0), bound=9.5, storage_bytes=1000, optimum_bytes=1000)


def _epoch(seconds: float, *, stall: float, counted: float | None) -> Epoch:
    """Return an epoch of two steps, of each of which the rank waited for a part."""
    step = seconds / 2
    steps = Steps((0.0, step), (stall, stall), (step - stall,) * 2, (0.0, 0.0), (1, 1), (8, 8))
    return Epoch(steps, seconds, Kernel(0, 0, 0.0), {} if counted is None else {"seconds_stalled": counted}, 0.0)


def _run(*, first: float = 6.0, later: float = 4.0, counted: float | None = 0.02, tally: Tally = _ONCE) -> Run:
    """Return a run of two epochs on two ranks, of which the second ended each a second before the first."""
    early = None if counted is None else 9.0
    epochs = [
        (_epoch(first - rank, stall=0.5, counted=early), _epoch(later - rank, stall=0.1, counted=counted))
        for rank in range(2)
    ]
    records = tuple(Record(rank, "node", each, 0.0, 0, 0) for rank, each in enumerate(epochs))
    made = document(Recipe(ranks=2, nodes=1, repetitions=1, compute=0.02))
    return Run(replace(made, runs=(replace(made.runs[0], records=records),)), tally)


def test_an_epoch_is_as_long_as_on_its_slowest_rank() -> None:
    """Shares are of the time from the second one on, means of the ranks."""
    run = _run()
    assert run.epochs == pytest.approx((6.0, 4.0))
    assert run.seconds == pytest.approx(10.0)
    assert run.wait == pytest.approx(0.2 / 4)
    assert run.stall == pytest.approx(0.02 / 4)
    row = Row.of("clairvoyant", [run, _run(later=5.0)], _FORECAST)
    assert (row.step_ms, row.seconds, row.epoch_1, row.later) == pytest.approx((20, 10.5, 6.0, 4.5))
    assert row.spread == pytest.approx(0.5 / 10.5)
    assert row.read == pytest.approx(1000 / run.document.data["bytes"])
    assert Row.of("torch", [_run(counted=None)], _FORECAST).stall is None


def _found(**runs: list[Run]) -> dict[str, Finding]:
    """Return the goals of contenders, whose names have a slash for two underscores."""
    named = {name.replace("__", "/"): tuple(each) for name, each in runs.items()}
    turns = Turns(named, others=(0.0,))
    return {each.name: each for each in findings(turns, dict.fromkeys(named, _FORECAST), other_voxels=[])}


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("times faster than torch", {"torch": _run(first=11.0, later=10.1)}, {"torch": _run(first=11.0, later=9.9)}),
        ("times faster than lru", {"lru": _run(later=7.1)}, {"lru": _run(later=6.9)}),
        ("epoch 1: speed to plain reads", {"plain": _run(first=5.9)}, {"plain": _run(first=5.8)}),
        ("time to the lower bound", {"clairvoyant": _run(later=4.4)}, {"clairvoyant": _run(later=4.5)}),
        ("simulated time off by", {"clairvoyant": _run(later=5.7)}, {"clairvoyant": _run(later=5.8)}),
        (
            "half tiers: bytes to the optimum",
            {"clairvoyant__half": _run(tally=replace(_ONCE, data_bytes=1050))},
            {"clairvoyant__half": _run(tally=replace(_ONCE, data_bytes=1051))},
        ),
        (
            "stall from epoch 2 on",
            {"clairvoyant__train": _run(counted=0.039)},
            {"clairvoyant__train": _run(counted=0.041)},
        ),
    ],
)
def test_goals_are_met_or_short_by_the_figures(name: str, good: dict[str, Run], bad: dict[str, Run]) -> None:
    """Each by itself, at its limit."""
    for contenders, is_met in ((good, True), (bad, False)):
        field = {"clairvoyant": [_run()], **{each: [run] for each, run in contenders.items()}}
        assert _found(**field)[name].is_met == is_met


@pytest.mark.parametrize("odd", [replace(_ONCE, most=2), replace(_ONCE, least=0)])
def test_one_round_in_which_a_byte_was_not_read_once_is_enough(odd: Tally) -> None:
    """A median would forgive it."""
    for third, are_met in ((_ONCE, True), (odd, False)):
        runs = [_run(), _run(), _run(tally=third)]
        turns = Turns({"clairvoyant": tuple(runs)}, others=(0.0,) * 3)
        found = findings(turns, {"clairvoyant": _FORECAST}, other_voxels=[])
        assert all(each.is_met for each in found if "each byte" in each.name) == are_met


def test_a_wrong_voxel_is_enough() -> None:
    """Whoever delivered it."""
    turns = Turns({"lru": (_run(),)}, others=(0.0,))
    (found,) = findings(turns, {"lru": _FORECAST}, other_voxels=["lru, rank 1: sample 3"])
    assert not found.is_met


@pytest.mark.parametrize("form", [StoreFormat.ZARR3, StoreFormat.HDF5])
def test_samples_behind_a_server_are_those_of_the_folder(form: StoreFormat, tmp_path: Path) -> None:
    """All of their voxels' bytes are found in the files, and they are verified as what was generated."""
    plan = DatasetPlan((2, 8, 8, 8), "<i2", Storage(form, chunks=(2, 4, 8, 8)), samples=2)
    (tmp_path / "links").mkdir()
    generate(tmp_path / "data", plan)
    linked(tmp_path / "data", plan, "http://localhost:1/x", tmp_path / "links")
    stored = [
        (tmp_path / "data" / each.path).read_bytes()[each.start : each.stop]
        for each in extents(tmp_path / "data", plan)
    ]
    chunks = []
    for sample in range(plan.samples):
        volume = np.empty(plan.shape, np.int16)
        plan.values.fill(Box.whole(plan.spatial), volume, sample=sample)
        chunks += [volume[:, :4].tobytes(), volume[:, 4:].tobytes()]
    assert sorted(stored) == sorted(chunks)
    assert Truth.of(tmp_path / "links").plan == plan
    data = voxload.VolumeDataset(tmp_path / "links", allow_outside=True)
    assert all(is_url(data.locations(index)[0].path) for index in range(plan.samples))


def test_contenders_have_names() -> None:
    """Policies may have half the room; all may train longer."""
    assert prefetch._contenders("torch/train,lru/half,plain") == ("torch/train", "lru/half", "plain")
    for wrong in ("torch/half", "magic", "lru/whole", "plain/half/train", ""):
        with pytest.raises(argparse.ArgumentTypeError, match="expected torch, plain or one of clairvoyant"):
            prefetch._contenders(wrong)


@pytest.mark.long
def test_a_small_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four ranks of each contender, told apart by what they ask of the server; nothing is said of their times."""
    fork_launches(monkeypatch)
    monkeypatch.setenv("PYTHONPATH", "")  # restored afterwards: the script changes it
    words = "--samples 4 --size 16 --epochs 2 --bandwidth 100MB --latency 0 --compute 0.001 --rounds 1 --threads 1"
    files = ["--json", str(tmp_path / "a.json"), "--plot", str(tmp_path / "a.png"), "--folder", str(tmp_path / "data")]
    more = ["--contenders", "torch,clairvoyant/train", "--train", "0.002"]
    prefetch.main([*words.split(), *more, *files])
    printed = capsys.readouterr().out
    assert "4 samples of 4 x 16^3 int16 (zarr3), 2 epochs, 2 groups of 2 ranks" in printed
    found = json.loads((tmp_path / "a.json").read_text())
    assert found["measured"]["prefetching"]["wrong"] == []
    read = {each["contender"]: each["read"] for each in found["contenders"]}
    assert read["torch"] == 2
    assert read["clairvoyant/train"] >= 1
    policies = [each["runs"][0]["document"]["workload"]["supply"]["policy"] for each in found["contenders"]]
    assert policies == ["", "clairvoyant"]
    assert (tmp_path / "a.png").stat().st_size > 0
