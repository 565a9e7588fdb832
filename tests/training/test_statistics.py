"""Statistics: inputs become mean 0 and deviation 1, targets fill [-1, 1], and nonsense is refused."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

import voxload
from voxload.errors import UsageError
from voxload.grid import ProcessGrid
from voxload.training.normalisation import MOST_SAMPLES, Moments, TargetScale, _sums


def _data(
    folder: Path, cubes: np.ndarray[tuple[int, ...], np.dtype[np.float32]], grid: ProcessGrid | None = None
) -> voxload.VolumeDataset:
    for index, cube in enumerate(cubes):
        with h5py.File(folder / f"u{index:02}.h5", "w") as file:
            file["x"] = cube
    return voxload.VolumeDataset(f"{folder}/*.h5", axes="CDHW", grid=grid)


@pytest.mark.parametrize("log1p", [True, False])
def test_inputs_are_standardised_by_channel(tmp_path: Path, log1p: bool) -> None:
    """The transform of all samples together has mean 0 and deviation 1 in each channel, as numpy computes them."""
    rng = np.random.default_rng(1)
    cubes = rng.gamma(2, 50, (5, 2, 6, 6, 6)).astype(np.float32) * np.array([1, 9], np.float32).reshape(1, 2, 1, 1, 1)
    data = _data(tmp_path, cubes)
    transform = Moments.of(data, batch_size=2, log1p=log1p).transform
    data.close()
    values = np.log1p(cubes.astype(np.float64)) if log1p else cubes.astype(np.float64)
    axes = (0, 2, 3, 4)
    expected = (values - values.mean(axes, keepdims=True)) / values.std(axes, keepdims=True)
    np.testing.assert_allclose(transform(torch.from_numpy(cubes)).numpy(), expected, atol=2e-5)


@pytest.mark.parametrize(("samples", "groups"), [(5, 1), (5, 3), (5, 4), (3, 4), (MOST_SAMPLES + 5, 3)])
def test_each_sample_counts_once_on_any_number_of_groups(tmp_path: Path, samples: int, groups: int) -> None:
    """What groups are given twice, so that all have as many, and what lies beyond the first samples, is left out."""
    cubes = np.random.default_rng(2).normal(size=(samples, 1, 2, 2, 2)).astype(np.float32)
    total = torch.zeros((3, 1), dtype=torch.float64)
    for rank in range(groups):
        data = _data(tmp_path, cubes, ProcessGrid(world_size=groups, rank=rank))
        total += _sums(data, 2, torch.Tensor.float)
        data.close()
    counted = cubes[:MOST_SAMPLES].astype(np.float64)
    np.testing.assert_allclose(total[:, 0], [counted.size, counted.sum(), (counted**2).sum()], rtol=1e-12)


def test_values_without_a_logarithm_and_constant_channels_are_refused(tmp_path: Path) -> None:
    """Negative voxels under log1p, and channels that cannot be standardised, are errors that say what to do."""
    cubes = np.random.default_rng(0).normal(0, 3, (2, 1, 4, 4, 4)).astype(np.float32)
    data = _data(tmp_path, cubes)
    with pytest.raises(UsageError, match="--no-log1p"):
        Moments.of(data, batch_size=1, log1p=True)
    data.close()
    (tmp_path / "same").mkdir()
    data = _data(tmp_path / "same", np.ones((2, 1, 4, 4, 4), np.float32))
    with pytest.raises(UsageError, match="a channel that does not vary"):
        Moments.of(data, batch_size=1, log1p=False)
    data.close()


def test_target_scales_invert() -> None:
    """Scaled training targets span [-1, 1], a constant one becomes 0, and the way back is exact."""
    targets = torch.tensor([[1.0, 70.0, 5.0], [3.0, 60.0, 5.0], [2.0, 80.0, 5.0]])
    scale = TargetScale.of(targets)
    scaled = scale.scaled(targets)
    assert torch.equal(scaled, torch.tensor([[-1.0, 0.0, 0.0], [1.0, -1.0, 0.0], [0.0, 1.0, 0.0]]))
    assert torch.equal(scale.original(scaled), targets)
