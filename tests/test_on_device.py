"""Training and predicting on a device: the numbers of the host, and files that load anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
import zarr

from tests.training.stops import REGRESSION, SEGMENTATION, regression, segmentation, single_threaded
from voxload.catalog.table import Catalog, Entry
from voxload.cli.main import run
from voxload.inference.plan import InferencePlan
from voxload.inference.result import InferenceResult
from voxload.inference.store import PREDICTIONS
from voxload.inference.worker import infer_rank
from voxload.training.checkpoint import CHECKPOINT
from voxload.training.plan import TrainingPlan
from voxload.training.result import WEIGHTS, TrainingResult
from voxload.training.worker import train_rank

pytestmark = pytest.mark.gpu

_ROUNDING = 1e-8
"""Of float64, over two epochs."""


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Compute on one core of the host."""
    with single_threaded():
        yield


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a catalogue of volumes of 16^3 whose labels say where they are bright, made of nothing but HDF5."""
    folder, rng = tmp_path_factory.mktemp("labelled"), np.random.default_rng(0)
    entries = []
    for number in range(8):
        volume = rng.normal(size=(16, 16, 16)).astype("<f4")
        labels = np.digitize(volume, (0.5, 1.5)).astype("u1")
        with h5py.File(folder / f"u{number}.h5", "w") as file:
            file["volume"], file["labels"] = volume, labels
        entries += [
            Entry(f"u{number}", f"u{number}.h5", name, (16, 16, 16), values.dtype.str, "DHW", values.nbytes)
            for name, values in (("volume", volume), ("labels", labels))
        ]
    path = folder / "catalog.parquet"
    Catalog.from_entries(entries, folder).write(path)
    return path


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a catalogue of cubes of 32^3 whose mean is their target."""
    folder, rng = tmp_path_factory.mktemp("numbers"), np.random.default_rng(0)
    entries = []
    for number in range(8):
        level = rng.uniform(-1, 1)
        with h5py.File(folder / f"u{number}.h5", "w") as file:
            file["full"] = rng.poisson(20 + 15 * level, (2, 32, 32, 32)).astype("<i2")
        shape = (2, 32, 32, 32)
        entries.append(
            Entry(f"u{number}", f"u{number}.h5", "full", shape, "<i2", "CDHW", 2 * 2 * 32**3, targets={"level": level})
        )
    path = folder / "catalog.parquet"
    Catalog.from_entries(entries, folder).write(path)
    return path


def _hush(event: dict[str, Any]) -> None:
    """Hear nothing."""


def _trained(plan: TrainingPlan) -> TrainingResult:
    result = train_rank(plan, _hush)
    assert result is not None
    return result


def _predicted(plan: InferencePlan) -> InferenceResult:
    result = infer_rank(plan, _hush)
    assert result is not None
    return result


def _tensors(value: Any) -> list[torch.Tensor]:
    """Return all tensors of a tree."""
    if isinstance(value, torch.Tensor):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [tensor for each in inner for tensor in _tensors(each)]


def test_classes_are_learned_and_predicted(labelled: Path, tmp_path: Path, device: torch.device) -> None:
    """A U-Net's losses, Dice and predicted classes are those of the host; a run may move between the two."""
    recipe = replace(SEGMENTATION, epochs=2)
    plans = {
        place: replace(
            segmentation(str(labelled), tmp_path / place, dataset="volume", log1p=False, optimisation=recipe),
            device=place,
        )
        for place in {"cpu", device.type}
    }
    results = {place: _trained(plan) for place, plan in plans.items()}
    there, here = results[device.type], results["cpu"]
    for one, other in zip(there.epochs, here.epochs, strict=True):
        assert one.training_loss == pytest.approx(other.training_loss, rel=_ROUNDING)
        assert one.validation_loss == pytest.approx(other.validation_loss, rel=_ROUNDING)
    for name in (WEIGHTS, CHECKPOINT):
        saved = torch.load(tmp_path / device.type / name, weights_only=True)
        assert {tensor.device.type for tensor in _tensors(saved)} == {"cpu"}
    longer = replace(recipe, epochs=3)
    with pytest.warns(RuntimeWarning, match="3 epochs, where 2 were planned"):
        moved = _trained(replace(plans[device.type], device="cpu", optimisation=longer, resume=True))
    assert [epoch.training_loss for epoch in moved.epochs[:2]] == [epoch.training_loss for epoch in there.epochs]
    found = {
        place: _predicted(
            InferencePlan(str(labelled), str(tmp_path / "cpu"), str(tmp_path / f"predicted-{place}"), device=place)
        )
        for place in {"cpu", device.type}
    }
    assert found[device.type].dice == pytest.approx(found["cpu"].dice, rel=1e-3)
    volumes = {
        place: [
            np.asarray(zarr.open_array(path / PREDICTIONS, mode="r"))
            for path in sorted((tmp_path / f"predicted-{place}" / PREDICTIONS).glob("*.zarr"))
        ]
        for place in found
    }
    for classes, wanted in zip(volumes[device.type], volumes["cpu"], strict=True):
        assert np.mean(classes != wanted) <= 1e-3  # voxels of which two classes are equally likely


@pytest.mark.long
def test_targets_are_learned_and_predicted(numbers: Path, tmp_path: Path, device: torch.device) -> None:
    """CosmoFlow's losses and errors are those of the host."""
    recipe = replace(REGRESSION, epochs=1)
    results = {}
    for place in {"cpu", device.type}:
        # Transforms compute in float32, in which a GPU rounds logarithms otherwise: tests/loader/test_collation.py.
        plan = regression(str(numbers), tmp_path / place, log1p=False, optimisation=recipe)
        results[place] = _trained(replace(plan, device=place))
    one, other = results[device.type].epochs[0], results["cpu"].epochs[0]
    assert one.training_loss == pytest.approx(other.training_loss, rel=_ROUNDING)
    assert one.validation_mae == pytest.approx(other.validation_mae, rel=_ROUNDING)
    found = [
        _predicted(
            InferencePlan(str(numbers), str(tmp_path / "cpu"), str(tmp_path / f"predicted-{place}"), device=place)
        )
        for place in ("cpu", device.type)
    ]
    assert found[1].mae == pytest.approx(found[0].mae, rel=_ROUNDING)


@pytest.mark.usefixtures("cuda")
def test_the_commands_run_on_a_gpu(labelled: Path, tmp_path: Path) -> None:
    """`voxload train` and `voxload infer` with --device cuda, as a user calls them."""
    words = ["--model", "unet3d", "--labels", "labels", "--classes", "3", "--widths", "4,8,16", "--epochs", "1"]
    out = str(tmp_path / "run")
    assert run(["train", str(labelled), *words, "--no-log1p", "--device", "cuda", "--output", out]) == 0
    predicted = str(tmp_path / "predicted")
    assert run(["infer", str(labelled), "--checkpoint", out, "--device", "cuda", "--output", predicted]) == 0


def test_a_gpu_that_is_not_there_is_told(
    labelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command says in a line what it lacks and what to do, with status 2."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.chdir(tmp_path)
    words = ["--model", "unet3d", "--labels", "labels", "--classes", "3", "--widths", "4,8,16", "--epochs", "1"]
    assert run(["train", str(labelled), *words, "--device", "cuda"]) == 2
    assert "--device cuda: found no GPU that torch can use" in (said := capsys.readouterr().err)
    assert "use --device cpu" in said
    assert not list(tmp_path.iterdir())
    assert run(["train", str(labelled), *words, "--device", "tpu"]) == 2
    assert "--device: found 'tpu', expected cpu or cuda" in capsys.readouterr().err
