"""Segmentation: Dice of whole volumes, labels that are what they should be, and a network that learns them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from tests.training.stops import segmentation, train
from voxload.catalog.table import Catalog, Entry
from voxload.errors import DataError, UsageError
from voxload.grid import ProcessGrid
from voxload.training.data import Fields, TrainingData
from voxload.training.plan import Optimisation, TrainingPlan
from voxload.training.tasks import Segmentation

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def task(labelled: Path, tmp_path: Path) -> Iterator[Segmentation]:
    """Return the task of three classes on the labelled samples."""
    grid, plan = ProcessGrid(), segmentation(str(labelled), tmp_path)
    data = TrainingData(plan, grid)
    yield Segmentation(plan, data, grid)
    data.close()


def _volume(*classes: int) -> torch.Tensor:
    """Return labels ``(1, 1, 2, 2, 2)`` that begin with these classes; the rest is background."""
    return torch.tensor([*classes, *[0] * (8 - len(classes))], dtype=torch.uint8).reshape(1, 1, 2, 2, 2)


def _logits(labels: torch.Tensor) -> torch.Tensor:
    """Return outputs that say these labels."""
    return torch.nn.functional.one_hot(labels[:, 0].long(), 3).movedim(-1, 1).float() * 9


def test_dice_is_of_whole_volumes(task: Segmentation) -> None:
    """By hand: twice what both have over what each has, by sample and class; 1 where a class is in neither."""
    truth = torch.cat([_volume(1, 1, 2, 2), _volume(1)])
    found = torch.cat([_volume(1, 0, 2, 2, 2, 2), _volume(1)])
    marks = task.marks(_logits(found), truth)
    assert marks[:, 1].tolist() == [8, 8]
    assert marks[:, 2:].tolist() == [[1, 2, 1, 4, 2, 2], [1, 0, 1, 0, 1, 0]]
    judged = task.judgement(marks)
    assert judged.dice == pytest.approx(((2 / 3 + 1) / 2, (2 / 3 + 1) / 2))
    assert judged.loss == pytest.approx(float(sum(task.loss(_logits(f), t) for f, t in _pairs(found, truth))) / 2)
    assert task.judgement(marks / 4).dice == judged.dice  # averages over four ranks are as good as sums
    halves = torch.cat([task.marks(_logits(f), t) for f, t in _pairs(found, truth)])
    torch.testing.assert_close(halves, marks)


def _pairs(found: torch.Tensor, truth: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return batches of one sample."""
    return [(found[one : one + 1], truth[one : one + 1]) for one in range(len(truth))]


def test_the_baseline_has_learnt_nothing(task: Segmentation) -> None:
    """Chance is the class's share where all volumes have as much of it; everywhere follows from that share too."""
    truth = torch.cat([_volume(1, 1, 2), _volume(1, 1, 0, 2)])
    found = task.baseline(task.marks(_logits(truth), truth)).dice
    assert found is not None
    assert found.classes == (1, 2)
    assert found.chance_dice == pytest.approx((2 / 8, 1 / 8))
    assert found.everywhere_dice == pytest.approx((4 / 10, 2 / 9))
    uneven = task.baseline(task.marks(_logits(truth), torch.cat([_volume(1, 1), _volume()]))).dice
    assert uneven is not None
    assert uneven.chance_dice == pytest.approx((2 * 0.125 * 2 / (1 + 2) / 2, 1))


def test_labels_that_are_none_are_refused(task: Segmentation) -> None:
    """A class beyond those that there are, and values that are no integers of one channel."""
    with pytest.raises(DataError, match=r"labels 'labels': found values from 0 to 3, expected 0 to 2; say --classes"):
        task.loss(_logits(_volume()), _volume(3))
    with pytest.raises(UsageError, match=r"found torch\.float32 of 1 channels, expected one channel of integers"):
        task.loss(_logits(_volume()), _volume().float())


@pytest.mark.parametrize(
    ("widths", "expected"),
    [((4,) * 6, "multiples of 32"), ((4,) * 5, "more than one of them along some axis")],
)
def test_extents_that_do_not_fit_are_refused(
    labelled: Path, tmp_path: Path, widths: tuple[int, ...], expected: str
) -> None:
    """Volumes of 16 voxels cannot be halved five times, nor four times down to a single voxel."""
    with pytest.raises(UsageError, match=rf"UNet3D: found samples of \(16, 16, 16\).*{expected}.*--widths"):
        train(segmentation(str(labelled), tmp_path, widths=widths))


@pytest.mark.long
def test_a_small_network_learns(labelled: Path, tmp_path: Path) -> None:
    """After a few epochs Dice of large structures is far above the baselines, on volumes that were not trained on."""
    recipe = Optimisation(epochs=12, batch_size=2, learning_rate=3e-2, dropout=0.0)
    result, _ = train(segmentation(str(labelled), tmp_path, widths=(8, 16), optimisation=recipe, checkpoint_every=0))
    assert result.dice_baseline is not None
    assert (result.targets, result.mean_predictor_mae, result.mae_ratio) == ((), (), ())
    baseline = max(result.dice_baseline.chance_dice[1], result.dice_baseline.everywhere_dice[1])
    assert result.epochs[-1].validation_dice[1] > 2 * baseline
    assert result.epochs[-1].training_loss < 0.7 * result.epochs[0].training_loss


def test_the_volume_is_the_dataset_that_is_not_the_labels() -> None:
    """Where there is one besides; else it has to be said, and so do targets where there are none."""
    plan = TrainingPlan("c.parquet", "out", model="unet3d", labels="y", classes=2)
    assert Fields.of(plan, _catalog("x", "y")) == Fields({"x": "x", "labels": "y"})
    with pytest.raises(UsageError, match=r"dataset: found \['w', 'x'\] besides the labels 'y'.*say --dataset NAME"):
        Fields.of(plan, _catalog("w", "x", "y"))
    assert Fields.of(replace(plan, dataset="w"), _catalog("w", "x", "y")).volumes == {"x": "w", "labels": "y"}
    with pytest.raises(UsageError, match="no target column"):
        Fields.of(TrainingPlan("c.parquet", "out"), _catalog("x"))


def _catalog(*datasets: str) -> Catalog:
    entries = [Entry("a", "a.h5", name, (4, 4, 4), "<i2", "DHW", 1) for name in datasets]
    return Catalog.from_entries(entries, Path())


def test_labels_of_other_extents_are_refused(tmp_path: Path) -> None:
    """Volumes and labels are cut into the same blocks, so they are of the same extents."""
    entries = []
    for index in range(4):
        with h5py.File(tmp_path / f"{index}.h5", "w") as file:
            file["x"], file["y"] = np.ones((8, 8, 8), np.int16), np.zeros((8, 8, 4), np.uint8)
        for name, width in (("x", 8), ("y", 4)):
            dtype = "<i2" if name == "x" else "|u1"
            entries.append(Entry(str(index), f"{index}.h5", name, (8, 8, width), dtype, "DHW", 1))
    Catalog.from_entries(entries, tmp_path).write(tmp_path / "catalog.parquet")
    plan = segmentation(str(tmp_path / "catalog.parquet"), tmp_path, labels="y")
    with pytest.raises(DataError, match="fields of one spatial shape"):
        train(plan)
