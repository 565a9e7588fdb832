"""Transforms: the plain formula, in float32, voxel by voxel."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from voxload.errors import UsageError
from voxload.transforms import Compose, Log1p, Standardize

COUNTS = torch.from_numpy(np.random.default_rng(0).integers(0, 900, (2, 3, 4, 4, 4)).astype(np.int16))


def test_log1p_leaves_its_input() -> None:
    """Counts become float32 logarithms in a new tensor; float input is not changed in place either."""
    expected = np.log1p(COUNTS.numpy().astype(np.float32))
    np.testing.assert_allclose(Log1p()(COUNTS).numpy(), expected, rtol=1e-6)
    floats = COUNTS.float()
    Log1p()(floats)
    assert torch.equal(floats, COUNTS.float())


def test_standardize_acts_by_channel() -> None:
    """Each channel is shifted and scaled by its own pair; channels that do not match are refused."""
    found = Standardize([1, 2, 3], [1, 2, 4])(COUNTS)
    assert found.dtype == torch.float32
    assert torch.equal(found[:, 2], (COUNTS[:, 2].float() - 3) / 4)
    with pytest.raises(UsageError, match="found 3 channels, expected 2"):
        Standardize([0, 0], [1, 1])(COUNTS)
    with pytest.raises(UsageError, match="one positive std per mean"):
        Standardize([0], [0])


def test_compose_applies_in_order() -> None:
    """The first transform acts first, and the whole can be printed."""
    both = Compose(Log1p(), Standardize([0, 0, 0], [2, 2, 2]))
    assert torch.equal(both(COUNTS), Log1p()(COUNTS) / 2)
    assert repr(both) == "Compose(Log1p(), Standardize(mean=[0.0, 0.0, 0.0], std=[2.0, 2.0, 2.0]))"
