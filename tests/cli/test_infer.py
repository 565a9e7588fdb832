"""``voxload infer``: real processes from the command line, what its options refuse, and what it prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.launches import fork_launches
from tests.training.stops import SEGMENTATION, segmentation, single_threaded, train
from voxload.cli.main import run
from voxload.demo.structures import StructureRule, make_structures
from voxload.inference.plan import InferencePlan
from voxload.inference.result import InferenceResult

WRONG = {
    "no checkpoint": ([], "'--checkpoint'"),
    "world and grid": (["--checkpoint", "run", "--spatial", "2,2,2", "--nproc", "12"], "world size 12"),
    "no grid": (["--checkpoint", "run", "--spatial", "2x2"], "--spatial: found '2x2'"),
    "no format": (["--checkpoint", "run", "--format", "png"], "--format: found 'png', expected zarr or nifti"),
    "no batches": (["--checkpoint", "run", "--batch-size", "0"], "batch size: found 0, expected 1 or more"),
}


@pytest.mark.parametrize("case", WRONG)
def test_options_that_cannot_be_are_refused_at_once(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2 and one line, before any process is started or catalogue read."""
    monkeypatch.chdir(tmp_path)
    words, expected = WRONG[case]
    assert run(["infer", "none.parquet", *words]) == 2
    printed = capsys.readouterr().err
    assert expected in printed
    assert printed.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.long
@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.long)])
def test_processes_predict_and_their_figures_are_printed(
    ranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Processes share each volume; the figures come as JSON, and predictions can be looked at as any catalogue."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    if ranks == 1:  # two are a launcher's
        fork_launches(monkeypatch)
    rule = StructureRule(smoothing=1.0, quantile=0.8, large=100)
    catalog = make_structures(tmp_path / "data", count=4, size=16, seed=0, rule=rule)
    with single_threaded():
        train(segmentation(str(catalog), tmp_path / "run", checkpoint_every=0, optimisation=SEGMENTATION))
    words = ["--checkpoint", str(tmp_path / "run"), "--spatial", f"{ranks},1,1", "--nproc", str(ranks)]
    assert run(["infer", str(catalog.parent), *words, "--output", str(tmp_path / "out"), "--json"]) == 0
    figures = json.loads(capfd.readouterr().out)
    assert (figures["samples"], figures["labelled"], figures["classes"]) == (4, 4, [1, 2])
    assert figures["mean_dice"] == pytest.approx(sum(figures["dice"]) / 2)
    assert run(["info", str(tmp_path / "out" / "predictions"), "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["shapes"] == [[16, 16, 16]]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"predictions", "dice.csv"}


RESULTS = {
    "numbers": (
        InferenceResult(3, (2, 1, 1), 1, ("predictions.csv",), ("omega_m", "h"), (0.125, None), (2, 0), seconds=1.0),
        [["omega_m", "0.1250", "2"], ["h", "unknown", "0"]],
    ),
    "classes": (
        InferenceResult(3, (2, 1, 1), 1, ("predictions",), classes=(1, 2), dice=(0.25, 0.5), labelled=2),
        [["1", "0.2500"], ["2", "0.5000"], ["mean", "0.3750"]],
    ),
    "classes without labels": (
        InferenceResult(3, (2, 1, 1), 1, ("predictions",), classes=(1, 2)),
        [["No", "labels,", "and", "so", "no", "Dice."]],
    ),
}


@pytest.mark.parametrize("kind", RESULTS)
def test_figures_are_shown(kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Options become a plan, and a result becomes a table that says where the files are."""
    result, rows = RESULTS[kind]
    plans: list[InferencePlan] = []

    def take(plan: InferencePlan, **others: Any) -> InferenceResult:
        others["hear"]({"event": "begin", "samples": 3})
        others["hear"]({"event": "predicted", "samples": 3})
        plans.append(plan)
        return result

    monkeypatch.setattr("voxload.cli.network.infer.launch_inference", take)
    words = "--checkpoint run --dataset x --labels y --spatial 2,1,1 --nproc 2 --batch-size 3"
    assert run(["infer", "c.parquet", *words.split(), "--output", "out"]) == 0
    assert plans == [InferencePlan("c.parquet", "run", "out", (2, 1, 1), 3, "x", "y")]
    printed = capsys.readouterr().out
    lines = [line.split() for line in printed.splitlines()]
    assert all(row in lines for row in rows)
    assert f"{result.files[0]} are in out/." in printed
    assert InferenceResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result
