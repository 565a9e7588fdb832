"""Comparing results: shifts are found, noise is not, and single runs say that they say nothing."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import typer
from rich.console import Console

from tests.benchmark.documents import Recipe, constant, document
from voxload.benchmark.measure.document import Document
from voxload.benchmark.results.compare import Change, Comparison, Verdict, change, compare_results
from voxload.benchmark.results.measures import MEASURES, Better, Measure
from voxload.benchmark.results.tables import comparison_tables
from voxload.cli.bench.compare import compare

SPEED = MEASURES[0]


def _drawn(seed: int, runs: int, *, around: float = 100.0) -> list[float]:
    return [float(value) for value in around * np.random.default_rng(seed).lognormal(0, 0.05, runs)]


def _of(comparison: Comparison, name: str) -> Change:
    return next(found for found in comparison.changes if found.measure.name == name)


def _text(comparison: Comparison) -> str:
    stream = StringIO()
    Console(file=stream, width=80).print(comparison_tables(comparison))
    return stream.getvalue()


@pytest.mark.parametrize("runs", [4, 5, 8])
def test_noise_is_rarely_called_a_change(runs: int) -> None:
    """Of 200 pairs of results that differ by noise alone, no more than 5 % are told apart."""
    verdicts = [change(SPEED, _drawn(2 * seed, runs), _drawn(2 * seed + 1, runs)).verdict for seed in range(200)]
    assert set(verdicts) <= {Verdict.NOISE, Verdict.BETTER, Verdict.WORSE}
    assert sum(verdict is not Verdict.NOISE for verdict in verdicts) <= 10


def test_known_shifts_are_found() -> None:
    """A fifth more or less, at noise of 5 %, is found in nearly all of 100 pairs of five runs, and its size is held."""
    found = [change(SPEED, _drawn(seed, 5), _drawn(seed + 1000, 5, around=120)) for seed in range(100)]
    assert sum(one.verdict is Verdict.BETTER for one in found) >= 95
    assert not any(one.verdict is Verdict.WORSE for one in found)
    held = [one.interval is not None and one.interval.low <= 1.2 <= one.interval.high for one in found]
    assert sum(held) >= 90
    slower = change(SPEED, _drawn(1, 5), _drawn(2, 5, around=75))
    assert slower.verdict is Verdict.WORSE
    assert slower.ratio == pytest.approx(0.75, rel=0.1)


@pytest.mark.parametrize(
    ("better", "verdict"),
    [(Better.MORE, Verdict.BETTER), (Better.LESS, Verdict.WORSE), (Better.NEITHER, Verdict.CHANGED)],
)
def test_the_direction_in_which_a_figure_is_good_decides(better: Better, verdict: Verdict) -> None:
    """More is better, worse, or merely other."""
    measure = Measure("some", "some", "s", better)
    assert change(measure, [1.0, 1.1, 1.2, 1.05], [2.0, 2.1, 2.2, 2.05]).verdict is verdict


def test_three_runs_of_each_are_too_few_for_a_verdict() -> None:
    """Sides that do not overlap are no proof: one in ten such comparisons shows that without any change."""
    assert change(SPEED, [1.0, 1.1, 1.2], [2.0, 2.1, 2.2]).verdict is Verdict.FEW
    assert change(SPEED, [1.0, 1.1, 2.2], [2.0, 2.1, 1.2]).verdict is Verdict.NOISE
    assert "too few runs" in _text(compare_results(constant((1.0, 1.1, 1.2)), constant((2.0, 2.1, 2.2))))


def test_long_figures_are_not_cut() -> None:
    """Names wrap where figures and verdicts need the room of 80 columns."""
    text = _text(compare_results(constant((0.0, 1.2e9, 1.3e9, 1.4e9)), constant((0.0, 0.0, 1.5e12, 2e-12))))
    assert "1.25e+09" in text
    assert "infinite" in text
    assert "within noise" in text
    assert "…" not in text


def test_single_runs_have_no_interval() -> None:
    """One run each: medians and ratio, and the words that there is no interval."""
    comparison = compare_results(constant((10.0,)), constant((20.0,)))
    speed = _of(comparison, "samples_per_second")
    assert (speed.before, speed.after, speed.ratio) == (10, 20, 2)
    assert speed.interval is None
    assert {found.verdict for found in comparison.changes} == {Verdict.SINGLE}
    text = _text(comparison)
    assert "one run each: no interval" in text
    assert "better" not in text
    assert "B has one run: no interval" in _text(compare_results(constant((1.0, 2.0)), constant((1.0,))))


def test_results_of_ranks_that_wait_more_are_worse_where_waiting_counts() -> None:
    """Stalls three times as long: throughput, AU and stalls are worse; computing and bytes are as they were."""
    comparison = compare_results(document(Recipe(seed=1)), document(Recipe(seed=2, stall=0.036)))
    worse = {"samples_per_second", "utilisation", "seconds", "stall_seconds", "stall.p50", "step.p90"}
    assert {_of(comparison, name).verdict for name in worse} == {Verdict.WORSE}
    same = {"compute_seconds", "delivered_bytes", "asked_bytes", "peak_memory"}
    assert {_of(comparison, name).verdict for name in same} == {Verdict.NOISE}


def test_what_only_one_loader_counts_is_not_compared() -> None:
    """Amplification is of other bytes where a loader does not tell what it asked for."""
    comparison = compare_results(document(Recipe()), document(Recipe(tells=False)))
    assert _of(comparison, "asked_bytes").verdict is Verdict.MISSING
    assert math.isnan(_of(comparison, "asked_bytes").ratio)
    assert "amplification" not in {found.measure.name for found in comparison.changes}
    assert _of(compare_results(document(Recipe()), document(Recipe())), "amplification").ratio == 1


def test_what_differs_beside_the_figures_is_said() -> None:
    """Workload, data set, versions and labels; nothing of two results of the same."""
    first = document(Recipe(repetitions=2))
    assert compare_results(first, document(Recipe(repetitions=2, seed=4))).differences == ()
    facts = {"versions": {"python": "3.12.1", "numpy": "2.2.0", "h5py": "3.13.0"}}
    second = document(Recipe(repetitions=2, loader="other[1]", facts=facts, labels=("no ranks are absent",)))
    second = replace(second, data={**second.data, "chunks": [1, 32, 32, 32]})
    found = {(one.part, one.name): (one.before, one.after) for one in compare_results(first, second).differences}
    assert found["workload", "supply.loader"] == ("voxload", "other[1]")
    assert found["data set", "chunks"] == ("1, 64, 64, 64", "1, 32, 32, 32")
    assert found["host", "versions.numpy"] == ("2.1.0", "2.2.0")
    assert found["run", "label: no ranks are absent"] == ("(none)", "yes")
    assert len(found) == 3 + 3
    text = _text(compare_results(first, second))
    assert "other[1]" in text
    assert "unlike things" in text


def _files(folder: Path, *documents: Document) -> list[str]:
    paths = [folder / f"{place}.json" for place, _ in enumerate(documents)]
    for path, found in zip(paths, documents, strict=True):
        found.write(path)
    return [str(path) for path in paths]


def test_the_command_prints_both_forms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tables for people; JSON with nothing but numbers and null for programs."""
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(compare)
    files = _files(tmp_path, document(Recipe(seed=1)), document(Recipe(seed=2, stall=0.036, tells=False)))
    app(files, standalone_mode=False)
    assert "worse" in capsys.readouterr().out
    app([*files, "--json"], standalone_mode=False)
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert found["runs"] == [5, 5]
    by_name = {one["figure"]: one for one in found["figures"]}
    assert by_name["samples_per_second"]["verdict"] == "worse"
    assert by_name["samples_per_second"]["interval"]["high"] < 1
    assert by_name["asked_bytes"]["median_b"] is None
