"""examples/cosmology/larger_samples.py: its data, held-out universes, table and picture, by real processes."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from matplotlib.image import imread

import voxload
from voxload.catalog.table import Catalog
from voxload.errors import UsageError
from voxload.training.data import split_samples

EXAMPLE = Path(__file__).parents[2] / "examples" / "cosmology" / "larger_samples.py"
UNIVERSES = 16


@pytest.fixture(scope="module")
def example() -> ModuleType:
    """Return the example as a module."""
    spec = importlib.util.spec_from_file_location("voxload_example_larger_samples", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
def test_the_example_compares_and_draws(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both kinds are trained by processes; what is held out is the same, and eighths are those of their universe."""
    folder, output = tmp_path / "data", tmp_path / "report"
    words = ["--universes", str(UNIVERSES), "--epochs", "1", "--seeds", "1", "--json"]
    words += ["--folder", str(folder), "--output", str(output)]
    monkeypatch.setattr(sys, "argv", ["larger_samples.py", *words])
    example.main()
    printed = capsys.readouterr().out
    figures = json.loads((output / "figures.json").read_text())
    assert list(figures["error"]) == list(example.ROWS)
    assert all(label in printed for label in example.ROWS.values())
    assert figures["error"]["mean"]["sigma_8"] == [1.0, 0.0]
    # The mean of errors with a sign is never further from zero than that of errors without.
    for name in example.TARGETS:
        assert 0 < figures["error"]["averaged"][name][0] <= figures["error"]["part"][name][0] * (1 + 1e-5)
    assert imread(output / "larger-samples.png")[..., :3].std() > 0.02
    _check_results(output)
    _check_eighths(example, folder)


def _check_results(output: Path) -> None:
    """Check that both runs saw the same voxels and were judged by the same universes."""
    runs = {path.parent.name.split("-")[0]: json.loads(path.read_text()) for path in output.glob("*/result.json")}
    whole, eighths = runs["whole"], runs["eighths"]
    assert eighths["validation_samples"] == 8 * whole["validation_samples"] == UNIVERSES
    assert eighths["mean_predictor_mae"] == pytest.approx(whole["mean_predictor_mae"], rel=1e-5)
    assert eighths["training_samples"] == 8 * whole["training_samples"]
    assert [run["shape"] for run in (whole, eighths)] == [[64] * 3, [32] * 3]
    assert whole["spatial"] == [2, 1, 1]


def _check_eighths(example: ModuleType, folder: Path) -> None:
    """Check that held-out eighths are all those of the held-out universes, voxel by voxel and with their labels."""
    data = example.Data(folder, count=UNIVERSES)
    for seed in (0, 5):
        whole, eighths = (Catalog.read(data.catalog(kind, seed=seed)) for kind in example.GRIDS)
        universes, parts = (
            voxload.VolumeDataset(
                listed.select(split_samples(listed.samples, fraction=example.HELD_OUT, seed=seed).validation),
                targets=example.TARGETS,
            )
            for listed in (whole, eighths)
        )
        assert len(parts) == 8 * len(universes)
        for index in range(len(parts)):
            volume, truth = (tensor.numpy() for tensor in universes[index // 8])
            corner = [half * 32 for half in np.unravel_index(index % 8, (2, 2, 2))]
            found, targets = (tensor.numpy() for tensor in parts[index])
            assert np.array_equal(found, volume[(slice(None), *(slice(start, start + 32) for start in corner))])
            assert np.array_equal(targets, truth)
        universes.close()
        parts.close()


@pytest.mark.parametrize("count", [8, 20])
def test_other_numbers_of_universes_are_refused(example: ModuleType, tmp_path: Path, count: int) -> None:
    """An eighth of the universes, and of their eighths, has to be the same share."""
    with pytest.raises(UsageError, match="multiple of 8, 16 or more"):
        example.Data(tmp_path, count=count)
    with pytest.raises(UsageError, match="batch: found 3, expected a multiple of 2"):
        example.Setting(3, 1e-4)
