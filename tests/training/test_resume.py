"""Training that was stopped goes on as if nothing had happened, on other grids too, or says why it does not."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.ranks import printed_by_ranks
from tests.training.stops import (
    REGRESSION,
    SEGMENTATION,
    figures,
    regression,
    segmentation,
    single_threaded,
    stopped,
    train,
)
from voxload.catalog.places import place_of
from voxload.catalog.table import Catalog
from voxload.cli.main import run
from voxload.errors import DataError, NotFoundError, StorageError, UsageError
from voxload.loader.cache import Cache
from voxload.models import CosmoFlow, UNet3D
from voxload.training.checkpoint import CHECKPOINT, Checkpoint
from voxload.training.learner import rate_factor
from voxload.training.plan import TrainingPlan
from voxload.training.result import WEIGHTS, TrainingResult

ROOT = Path(__file__).parents[2]
RANKS = 4
Weights = dict[str, torch.Tensor]
pytestmark = pytest.mark.usefixtures("one_thread")


@dataclass(frozen=True)
class Whole:
    """A run of one process that was not stopped, in float64, and what it left on its way."""

    plan: TrainingPlan
    result: TrainingResult
    weights: Weights


@pytest.fixture(scope="module")
def whole(catalog: Path, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Train two epochs of three steps; stops lie behind the second step and the first epoch."""
    recipe = replace(REGRESSION, dropout=0.3, dtype="float32")
    plan = regression(str(catalog), tmp_path_factory.mktemp("whole") / "run", optimisation=recipe)
    with single_threaded():
        return Whole(plan, *train(plan, stops=[(0, 0), (0, 2), (1, 0), (2, 0)]))


@pytest.mark.long
@pytest.mark.parametrize(
    "place", [(0, 2), *(pytest.param(place, marks=pytest.mark.long) for place in ((0, 0), (1, 0), (2, 0)))], ids=str
)
def test_a_resumed_run_ends_with_the_same_bits(whole: Whole, place: tuple[int, int], tmp_path: Path) -> None:
    """Weights, losses and errors are equal, dropout included, wherever the run was stopped; the end is a place too."""
    shutil.copytree(stopped(Path(whole.plan.output), place), tmp_path / "run")
    result, weights = train(replace(whole.plan, output=str(tmp_path / "run"), resume=True, checkpoint_every=0))
    assert figures(result) == figures(whole.result)
    assert result.mean_predictor_mae == whole.result.mean_predictor_mae
    assert all(torch.equal(values, weights[name]) for name, values in whole.weights.items())
    assert result.ranks[0].bytes_needed == (6 - place[0] * 3 - place[1]) * 4 * 2 * 32**3 * 2
    CosmoFlow(32, channels=2, targets=2).load_state_dict(Checkpoint.read(tmp_path / "run").learner["network"])


@pytest.mark.long
def test_a_finished_run_is_prolonged(whole: Whole, tmp_path: Path) -> None:
    """Epochs that are behind stay; later ones follow at the step sizes of the longer run, which a warning says."""
    shutil.copytree(stopped(Path(whole.plan.output), (2, 0)), tmp_path / "run")
    longer = replace(whole.plan.optimisation, epochs=3)
    plan = replace(whole.plan, output=str(tmp_path / "run"), resume=True, optimisation=longer)
    with pytest.warns(RuntimeWarning, match="3 epochs, where 2 were planned"):
        result, weights = train(plan)
    assert [epoch.training_loss for epoch in result.epochs[:2]] == [e.training_loss for e in whole.result.epochs]
    assert len(result.epochs) == 3
    assert any(not torch.equal(values, weights[name]) for name, values in whole.weights.items())
    rates = Checkpoint.read(tmp_path / "run").learner["schedule"]["_last_lr"]
    assert rates == [longer.learning_rate * rate_factor(9, 9)]
    shorter = replace(plan, optimisation=replace(longer, epochs=2))
    with pytest.raises(UsageError, match="--resume with fewer epochs: found 2"):
        train(shorter)


@pytest.mark.long
def test_a_resumed_run_may_keep_blocks(whole: Whole, tmp_path: Path) -> None:
    """What does not change the numbers may change: here a run without a cache goes on with one."""
    shutil.copytree(stopped(Path(whole.plan.output), (0, 2)), tmp_path / "run")
    plan = replace(whole.plan, output=str(tmp_path / "run"), resume=True, cache=Cache(memory="16MiB"))
    result, weights = train(plan)
    assert figures(result) == figures(whole.result)
    assert all(torch.equal(values, weights[name]) for name, values in whole.weights.items())


@pytest.mark.parametrize("by", ["hand", pytest.param("the command line", marks=pytest.mark.long)])
def test_a_killed_process_goes_on(
    by: str, whole: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """SIGKILL when the first epoch was told, somewhere in the second; the next run does the rest, to the bit."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    plan = replace(whole.plan, output=str(tmp_path / "run"))
    (tmp_path / "plan.json").write_text(plan.to_json(), encoding="utf-8")
    command = [sys.executable, "-m", "voxload.training.worker", str(tmp_path / "plan.json")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line)["event"] == "epoch":
                break
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    assert process.returncode == -signal.SIGKILL
    assert len(Checkpoint.read(tmp_path / "run").progress.epochs) == 1
    if by == "hand":
        with single_threaded():
            result, weights = train(replace(plan, resume=True))
    else:
        words = ["--epochs", "2", "--batch-size", "4", "--dropout", "0.3", "--validation", "0.25", "--json", "--resume"]
        assert run(["train", plan.catalog, *words, "--output", str(tmp_path / "run")]) == 0
        result = TrainingResult.from_json(capfd.readouterr().out)
        weights = torch.load(tmp_path / "run" / WEIGHTS, weights_only=True)
    assert figures(result) == figures(whole.result)
    assert all(torch.equal(values, weights[name]) for name, values in whole.weights.items())


@dataclass(frozen=True)
class Grids:
    """What the same plans gave in one process, and on grids of four."""

    one: dict[str, TrainingResult]
    weights: dict[str, Weights]
    four: dict[str, list[list[float]]]
    folder: Path


@pytest.fixture(scope="module")
def grids(catalog: Path, labelled: Path, tmp_path_factory: pytest.TempPathFactory) -> Grids:
    """Train in this process, leave a stop, and let four ranks go on from it on one grid and then another."""
    folder = tmp_path_factory.mktemp("grids")
    with single_threaded():
        cubes, cubes_weights = train(regression(str(catalog), folder / "one"), stops=[(0, 2)])
        unet, unet_weights = train(segmentation(str(labelled), folder / "unet-one"))
    printed_by_ranks("tests.training.rank_resume", catalog, labelled, folder, ranks=RANKS)
    four = json.loads((folder / "learnt.json").read_text(encoding="utf-8"))
    results = {"one block of four": cubes, "two halves twice": cubes, "unet": unet}
    weights = {"one block of four": cubes_weights, "two halves twice": cubes_weights, "unet": unet_weights}
    return Grids(results, weights, four, folder)


@pytest.mark.long
@pytest.mark.parametrize("name", ["one block of four", "two halves twice", "unet"])
def test_grids_give_equal_numbers(grids: Grids, name: str) -> None:
    """One process, four blocks of a sample, two groups of two: losses and weights are equal to rounding in float64."""
    for mine, others in zip(figures(grids.one[name]), grids.four[name], strict=True):
        assert others == pytest.approx(mine, rel=1e-9)
    weights = torch.load(grids.folder / f"{name}.pt", weights_only=True)
    for key, values in grids.weights[name].items():
        torch.testing.assert_close(weights[key], values, rtol=1e-7, atol=1e-9)


@pytest.mark.long
def test_ranks_end_with_the_same_bits(grids: Grids) -> None:
    """On four ranks too, where sums depend on their order, a stopped run ends as the one that was not."""
    assert grids.four["same bits"] == [[1.0]]


@pytest.mark.long
def test_split_weights_load_into_the_plain_networks(grids: Grids) -> None:
    """Checkpoints of blocks are those of ordinary networks."""
    UNet3D(1, 3, widths=(4, 8, 8)).load_state_dict(torch.load(grids.folder / "unet.pt", weights_only=True))
    found = Checkpoint.read(grids.folder / "one-0-2")
    CosmoFlow(32, channels=2, targets=2).load_state_dict(found.learner["network"])


OTHER: dict[str, tuple[Callable[[TrainingPlan], dict[str, Any]], str]] = {
    "epochs": (lambda plan: {"optimisation": replace(plan.optimisation, epochs=1)}, "fewer epochs: found 1, expected"),
    "seed": (lambda plan: {"optimisation": replace(plan.optimisation, seed=1)}, "another seed"),
    "rate": (lambda plan: {"optimisation": replace(plan.optimisation, learning_rate=1.0)}, "another learning-rate"),
    "type": (lambda plan: {"optimisation": replace(plan.optimisation, dtype="float64")}, "another dtype"),
    "split": (lambda _: {"validation": 0.5}, "another validation: found 0.5, expected 0.25, as in the checkpoint"),
    "input": (lambda _: {"log1p": False}, "another log1p"),
    "batch": (
        lambda plan: {"optimisation": replace(plan.optimisation, batch_size=2)},
        "other steps: found 1 sample groups of 2: 2 samples, expected 4, as in the checkpoint",
    ),
}  # fmt: skip
"""Settings that a run cannot go on with, and what is said."""


@pytest.mark.parametrize("name", OTHER)
def test_another_run_is_not_gone_on_with(whole: Whole, name: str) -> None:
    """A setting that would change the result is refused by its name, before any sample is read."""
    change, expected = OTHER[name]
    with pytest.raises(UsageError, match=f"--resume with {expected}"):
        train(replace(whole.plan, resume=True, **change(whole.plan)))


def test_other_data_are_not_gone_on_with(whole: Whole, tmp_path: Path) -> None:
    """Other targets are noticed; the same samples under another path are not in the way."""
    plan = replace(whole.plan, resume=True, allow_outside=True)
    listed = Catalog.read(plan.catalog)
    moved = Catalog.from_entries([_moved(listed, *key, scale=1.0) for key in listed.keys], tmp_path, allow_outside=True)
    moved.write(tmp_path / "moved.parquet")
    train(replace(plan, catalog=str(tmp_path / "moved.parquet")))
    other = Catalog.from_entries([_moved(listed, *key, scale=2.0) for key in listed.keys], tmp_path, allow_outside=True)
    other.write(tmp_path / "other.parquet")
    with pytest.raises(UsageError, match="--resume with other data: found samples or targets of digest"):
        train(replace(plan, catalog=str(tmp_path / "other.parquet")))


def _moved(listed: Catalog, sample: str, dataset: str, *, scale: float) -> Any:
    entry = listed.entry(sample, dataset)
    targets = {name: value * scale for name, value in entry.targets.items()}
    return replace(entry, path=place_of(listed.root, entry.path), targets=targets)


@pytest.mark.long
def test_what_differs_on_other_groups_is_said(labelled: Path, tmp_path: Path) -> None:
    """A network that normalises over batches goes by those of a group: a run on other groups warns."""
    recipe = replace(SEGMENTATION, epochs=1)
    plan = segmentation(str(labelled), tmp_path, variant="lbann", widths=(4, 8), optimisation=recipe)
    train(plan)
    saved = Checkpoint.read(tmp_path)
    replace(saved, plan=replace(plan, optimisation=replace(recipe, batch_size=2)), groups=2).write(tmp_path)
    with pytest.warns(RuntimeWarning, match="normalisation is over the 4 samples of a group, not 2; losses differ"):
        train(replace(plan, resume=True))


def test_without_a_checkpoint_there_is_nothing_to_go_on_from(whole: Whole, tmp_path: Path) -> None:
    """No file, and a file that is none or was cut, are errors that name it."""
    plan = replace(whole.plan, output=str(tmp_path), resume=True)
    with pytest.raises(NotFoundError, match=rf"checkpoint .*{CHECKPOINT}: found no such file; .*without --resume"):
        train(plan)
    data = (stopped(Path(whole.plan.output), (0, 2)) / CHECKPOINT).read_bytes()
    for broken in (b"", b"PK nothing", data[: len(data) // 2]):
        (tmp_path / CHECKPOINT).write_bytes(broken)
        with pytest.raises(DataError, match=rf"checkpoint .*{CHECKPOINT}: found .*expected what voxload train wrote"):
            train(plan)


@pytest.mark.long
def test_a_new_run_replaces_what_is_there(whole: Whole, tmp_path: Path) -> None:
    """Without --resume the old checkpoint goes, and so do the pieces of a writer that was killed."""
    shutil.copytree(stopped(Path(whole.plan.output), (1, 0)), tmp_path / "run")
    left = tmp_path / "run" / f".{CHECKPOINT}.partial-node-1"
    left.write_bytes(b"half")
    plan = replace(whole.plan, output=str(tmp_path / "run"))
    result, _ = train(plan, stops=[(0, 0)])
    assert Checkpoint.read(stopped(tmp_path / "run", (0, 0))).progress.epochs == ()
    assert figures(result) == figures(whole.result)
    assert [path.name for path in (tmp_path / "run").iterdir()] == [CHECKPOINT]


def test_a_folder_that_takes_no_checkpoint_is_refused_at_once(whole: Whole, tmp_path: Path) -> None:
    """A run does not find out at its end that nothing can be kept."""
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StorageError, match=r"checkpoint .*file/checkpoint\.pt"):
        train(replace(whole.plan, output=str(tmp_path / "file")))


@pytest.mark.long
def test_a_checkpoint_that_fails_later_does_not_end_a_run(
    whole: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run goes on with a warning, and the last good checkpoint stays."""
    write = Checkpoint.write

    def full(checkpoint: Checkpoint, folder: Path) -> None:
        if checkpoint.progress.epochs:
            raise StorageError("disk", found="no room")
        write(checkpoint, folder)

    monkeypatch.setattr(Checkpoint, "write", full)
    with pytest.warns(RuntimeWarning, match="disk: found no room"):
        result, _ = train(replace(whole.plan, output=str(tmp_path / "run")))
    assert figures(result) == figures(whole.result)
    assert Checkpoint.read(tmp_path / "run").progress.steps == 2
