"""Patches: trained on, predicted one by one and put together as MONAI's sliding window does, scans of many shapes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
import zarr
from monai.inferers.utils import sliding_window_inference

from tests.training.stops import SEGMENTATION, segmentation, single_threaded, train
from voxload.catalog.places import place_of
from voxload.catalog.table import Catalog
from voxload.convert import convert
from voxload.data.dataset import VolumeDataset
from voxload.errors import UsageError
from voxload.grid import ProcessGrid
from voxload.inference.plan import GAUSSIAN, MEAN, InferencePlan, Tiling
from voxload.inference.result import InferenceResult
from voxload.inference.worker import Inference
from voxload.loader.dataloader import DataLoader
from voxload.models import UNet3D
from voxload.training.checkpoint import Checkpoint
from voxload.training.plan import TrainingPlan
from voxload.training.result import TrainingResult

pytestmark = pytest.mark.usefixtures("one_thread")
PATCH = (8, 8, 8)
SHAPES = ((16, 12, 20), (9, 15, 10), (8, 16, 11), (12, 12, 12))
SMALL = ((7, 12, 9), (5, 7, 6))
"""Of scans that are smaller than a patch, and only predicted."""


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the catalogue of four scans of unequal shapes, each with a bright organ that is labelled."""
    return _converted(tmp_path_factory.mktemp("scans"), SHAPES)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the catalogue of scans of which some are smaller than a patch."""
    return _converted(tmp_path_factory.mktemp("small"), (*SMALL, SHAPES[1]))


def _converted(folder: Path, shapes: Sequence[tuple[int, int, int]]) -> Path:
    """Write scans of some shapes, and return their catalogue."""
    (folder / "raw").mkdir()
    for number, shape in enumerate(shapes):
        rng = np.random.default_rng(number)
        labels = np.zeros(shape, "u1")
        labels[2:6, 3:8, 2:7] = 1
        with h5py.File(folder / "raw" / f"s{number}.h5", "w") as file:
            file["ct"] = (rng.normal(0, 100, shape) + 700.0 * labels).astype("<i2")
            file["labels"] = labels
    return convert(folder / "raw", folder / "converted").catalog


def _plan(scans: Path, output: Path, **changes: Any) -> TrainingPlan:
    plan = segmentation(str(scans), output, **changes)
    return replace(plan, classes=2, log1p=False, patch=PATCH, patches=8, around_classes=True, validation=0.25)


def _infer(plan: InferencePlan) -> InferenceResult:
    with closing(Inference(plan, ProcessGrid())) as run:
        return run.execute(lambda _: None)


@pytest.fixture(scope="module")
def trained(scans: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TrainingResult]:
    """Train on patches; return the folder and what came of it."""
    output = tmp_path_factory.mktemp("patches") / "run"
    with single_threaded():
        recipe = replace(SEGMENTATION, epochs=15, batch_size=3, learning_rate=1e-2)
        result, _ = train(_plan(scans, output, optimisation=recipe, checkpoint_every=0))
    return output, result


@pytest.mark.long
def test_patches_of_scans_of_many_shapes_teach(trained: tuple[Path, TrainingResult]) -> None:
    """The organ is found in patches that cover the scan that was held out."""
    _, result = trained
    losses = [epoch.training_loss for epoch in result.epochs]
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("which", ["scans", "small"])
@pytest.mark.parametrize(
    ("overlap", "stitch"),
    [(0.5, GAUSSIAN), *(pytest.param(overlap, MEAN, marks=pytest.mark.long) for overlap in (0.25, 0.0))],
)
def test_classes_are_those_of_monais_sliding_window(
    trained: tuple[Path, TrainingResult],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    overlap: float,
    stitch: str,
    which: str,
) -> None:
    """Every voxel of every scan, by another implementation around the plain network, but where two classes tie."""
    run, _ = trained
    scans: Path = request.getfixturevalue(which)
    plan = InferencePlan(str(scans), str(run), str(tmp_path / "out"), batch_size=3, overlap=overlap, stitch=stitch)
    result = _infer(plan)
    assert result.samples == result.labelled == len(SHAPES if which == "scans" else (*SMALL, SHAPES[1]))
    saved = Checkpoint.read(run)
    network = UNet3D(1, 2, widths=(4, 8, 8))
    network.load_state_dict(saved.learner["network"])
    network.eval().to(getattr(torch, saved.plan.optimisation.dtype))
    listed = Catalog.read(scans)
    found = Catalog.read(tmp_path / "out" / "predictions")
    with closing(VolumeDataset(listed, fields={"x": "ct"})) as data:
        loader = DataLoader(data, transform=saved.moments.transform)
        with closing(loader), torch.no_grad():
            for sample, (volume,) in zip(data.sample_ids, loader, strict=True):
                expected = sliding_window_inference(
                    volume.to(next(network.parameters()).dtype),
                    PATCH,
                    1,
                    network,
                    overlap=overlap,
                    mode="gaussian" if stitch == GAUSSIAN else "constant",
                )
                entry = found.entry(sample, "predictions")
                stored = np.asarray(zarr.open_array(f"{place_of(found.root, entry.path)}/{entry.dataset}", mode="r")[:])
                expected = torch.as_tensor(expected)
                clear = (expected[0, 0] - expected[0, 1]).abs() > 1e-3
                assert clear.float().mean() > 0.99
                assert np.array_equal(stored[clear.numpy()], expected[0].argmax(0).numpy()[clear.numpy()])
                assert stored.shape == volume.shape[2:]


def test_what_does_not_fit_is_refused(trained: tuple[Path, TrainingResult], scans: Path, tmp_path: Path) -> None:
    """Patches parted over ranks, and patches of a network of whole samples' numbers."""
    plan = InferencePlan(str(scans), str(trained[0]), str(tmp_path / "out"))
    with pytest.raises(UsageError, match="leave out --spatial"):
        Inference(replace(plan, spatial=(2, 1, 1)), ProcessGrid((2, 1, 1), 2, 0))
    wrong: dict[str, Any]
    for wrong in ({"overlap": 1.0}, {"stitch": "best"}, {"patch": (8, 8, -8)}):
        with pytest.raises(UsageError, match="an overlap in"):
            _infer(replace(plan, **wrong))
    for changes in (
        {"patch": (8, 8)},
        {"patches": 0},
        {"model": "cosmoflow", "labels": "", "classes": 0, "widths": ()},
    ):
        with pytest.raises(UsageError, match="patches: found"):
            replace(_plan(scans, tmp_path), **changes)
    assert Tiling(PATCH).stitch == GAUSSIAN
    assert InferencePlan.from_json(plan.to_json()) == plan
    with_patches = _plan(scans, tmp_path)
    assert TrainingPlan.from_json(with_patches.to_json()) == with_patches
