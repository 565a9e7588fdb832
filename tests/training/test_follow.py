"""Training on a catalogue that grows meanwhile: new samples come with an epoch, and a stopped run loses none of it."""

from __future__ import annotations

import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.stops import REGRESSION, figures, regression, stopped
from voxload.catalog import Catalog, Rows
from voxload.catalog.append import append
from voxload.cli.main import run
from voxload.errors import UsageError
from voxload.grid import ProcessGrid
from voxload.training.checkpoint import CHECKPOINT, Checkpoint
from voxload.training.learner import rate_factor
from voxload.training.plan import TrainingPlan
from voxload.training.result import TrainingResult
from voxload.training.run import Run

SETS = ((3, 5, 7, 9, 11, 13, 15, 0), (2, 1, 6, 4), (14, 12, 10, 8))
"""Samples of each generation."""
EPOCHS = len(SETS)
Found = tuple[TrainingResult, dict[str, torch.Tensor]]
pytestmark = pytest.mark.usefixtures("one_thread")


def _grown(catalog: Path, place: Path, generation: int) -> None:
    """Let a catalogue come to a generation."""
    rows = Rows.read(catalog)
    ids = Catalog.read(catalog).samples
    for numbers in SETS[:generation]:
        append(place, [rows.keep([sample in {ids[number] for number in numbers} for sample in rows.samples])])


def _plan(place: Path, output: Path, **changes: Any) -> TrainingPlan:
    recipe = replace(REGRESSION, epochs=EPOCHS, dropout=0.3, dtype="float32")
    return regression(str(place), output, follow=True, allow_outside=True, optimisation=recipe, **changes)


def _train(plan: TrainingPlan, catalog: Path, *, keeps: bool = False) -> Found:
    """Train, while the catalogue grows behind each epoch; copies of all checkpoints are kept where they are to be."""

    def tell(event: dict[str, Any]) -> None:
        if event["event"] == "epoch":
            _grown(catalog, Path(plan.catalog), event["number"] + 1)
        elif keeps:
            folder = stopped(Path(plan.output), (event["epochs"], event["steps"]))
            folder.mkdir()
            shutil.copy(Path(plan.output) / CHECKPOINT, folder)

    with closing(Run(plan, ProcessGrid())) as run:
        return run.execute(tell), run.weights()


@pytest.fixture(scope="module")
def whole(catalog: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainingPlan, Found]:
    """Return a run that was not stopped, and what it found."""
    folder = tmp_path_factory.mktemp("follow")
    _grown(catalog, folder / "catalog.parquet", 1)
    plan = _plan(folder / "catalog.parquet", folder / "run")
    return plan, _train(plan, catalog, keeps=True)


def test_each_epoch_has_what_was_there(whole: tuple[TrainingPlan, Found]) -> None:
    """All that was not held out at first is trained on; the step size falls by epochs, whatever their length."""
    plan, (result, _) = whole
    assert [(epoch.samples, epoch.generation) for epoch in result.epochs] == [(6, 1), (10, 2), (14, 3)]
    assert (result.training_samples, result.validation_samples) == (14, 2)
    saved = Checkpoint.read(Path(plan.output))
    assert (saved.generation, saved.loader["generation"]) == (1, 3)
    rate, planned = plan.optimisation.learning_rate, 2 * EPOCHS
    for place, behind, share in (((0, 1), 1, 1), ((1, 0), 2, 2), ((1, 2), 4, 2 + 2 * 2 / 3), ((2, 1), 6, 4 + 2 / 4)):
        found = Checkpoint.read(stopped(Path(plan.output), place)).learner["schedule"]["_last_lr"]
        assert found == [pytest.approx(rate * rate_factor(behind, planned, place=share), rel=1e-12)]


@pytest.mark.parametrize("place", [(0, 1), (1, 0), (1, 1), (1, 2), (2, 0), (2, 3), (3, 0)], ids=str)
def test_a_resumed_run_ends_with_the_same_bits(
    whole: tuple[TrainingPlan, Found], catalog: Path, tmp_path: Path, place: tuple[int, int]
) -> None:
    """Though the catalogue grew while nothing ran."""
    plan, (result, weights) = whole
    shutil.copytree(stopped(Path(plan.output), place), tmp_path / "run")
    _grown(catalog, tmp_path / "catalog.parquet", place[0] + 1 + (place[1] > 0))
    resumed = _plan(tmp_path / "catalog.parquet", tmp_path / "run", resume=True)
    again, others = _train(resumed, catalog)
    assert figures(again) == figures(result)
    assert [epoch.samples for epoch in again.epochs] == [epoch.samples for epoch in result.epochs]
    assert all(torch.equal(values, others[name]) for name, values in weights.items())


def test_what_is_refused(
    whole: tuple[TrainingPlan, Found], catalog: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Trainers with fixed parts, another kind of run to go on with, and a catalogue that is behind the run."""
    plan, _ = whole
    with pytest.raises(UsageError, match=r"follow: found 2 trainers"):
        replace(plan, trainers=2, checkpoint_every=0)
    shutil.copytree(stopped(Path(plan.output), (1, 2)), tmp_path / "run")
    _grown(catalog, tmp_path / "catalog.parquet", 1)
    late = _plan(tmp_path / "catalog.parquet", tmp_path / "run", resume=True)
    with pytest.raises(UsageError, match=r"found generation 1, expected 2"):
        Run(late, ProcessGrid())
    with pytest.raises(UsageError, match=r"--resume with another follow: found False"):
        Run(replace(late, follow=False), ProcessGrid())
    words = ["train", str(tmp_path / "catalog.parquet"), "--follow", "--trainers", "2", "--nproc", "2"]
    assert run([*words, "--output", str(tmp_path / "other"), "--allow-outside"]) == 2
    assert "follow" in capsys.readouterr().err


@pytest.mark.long
def test_the_command_says_what_each_epoch_had(
    catalog: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two ranks, blocks of one sample, agree on it."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    _grown(catalog, tmp_path / "catalog.parquet", 2)
    words = ["train", str(tmp_path / "catalog.parquet"), "--follow", "--allow-outside", "--epochs", "2"]
    assert run([*words, "--nproc", "2", "--spatial", "2,1,1", "--output", str(tmp_path / "run")]) == 0
    found = TrainingResult.from_json((tmp_path / "run" / "result.json").read_text())
    assert [(epoch.samples, epoch.generation) for epoch in found.epochs] == [(10, 2), (10, 2)]
    assert "samples" in capsys.readouterr().out
