"""CosmoFlow: sizes, parameters and initial weights of the MLPerf variant."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import nn

from voxload.errors import UsageError
from voxload.models import CosmoFlow


@pytest.mark.parametrize(("size", "blocks", "widest"), [(32, 3, 128), (64, 4, 256), (128, 5, 512), (512, 7, 512)])
def test_depth_and_width_follow_the_size(size: int, blocks: int, widest: int) -> None:
    """There are log2(size) - 2 convolutions, doubling up to 512 channels, and 4^3 voxels are flattened."""
    with torch.device("meta"):
        model = CosmoFlow(size)
    convolutions = [layer for layer in model.modules() if isinstance(layer, nn.Conv3d)]
    assert [layer.out_channels for layer in convolutions] == [min(32 << index, 512) for index in range(blocks)]
    first = next(layer for layer in model.modules() if isinstance(layer, nn.Linear))
    assert (first.in_features, first.out_features) == (widest * 64, 128)
    assert model.input_shape == (size, size, size)


def test_mlperf_has_8_9_million_parameters() -> None:
    """The 128^3 network is MLPerf's: weights and biases of five convolutions and three dense layers, by hand."""
    widths = [4, 32, 64, 128, 256, 512]
    wanted = sum(27 * a * b + b for a, b in pairwise(widths))
    wanted += 32768 * 128 + 128 + 128 * 64 + 64 + 64 * 4 + 4
    assert sum(weight.numel() for weight in CosmoFlow(128).parameters()) == wanted


def test_outputs_and_initial_weights() -> None:
    """Outputs reach 1.2 on both sides at most; weights are Glorot-uniform, biases zero."""
    torch.manual_seed(0)
    model = CosmoFlow(32, channels=2, targets=3)
    found = model(1e3 * torch.randn(2, 2, 32, 32, 32))
    assert found.shape == (2, 3)
    assert 1.0 < found.abs().max().item() < 1.200001
    for layer in model.modules():
        if isinstance(layer, nn.Conv3d | nn.Linear):
            window = math.prod(layer.kernel_size) if isinstance(layer, nn.Conv3d) else 1
            limit = math.sqrt(6 / (window * (layer.weight.shape[0] + layer.weight.shape[1])))
            assert 0.9 * limit < layer.weight.abs().max().item() <= limit
            assert layer.bias is not None
            assert not layer.bias.any()


@pytest.mark.parametrize("size", [16, 48, 1024, 0, -32])
def test_other_sizes_are_refused(size: int) -> None:
    """Only powers of two from 32 to 512 make the network."""
    with pytest.raises(UsageError, match="power of two from 32 to 512"):
        CosmoFlow(size)


def test_senseless_settings_are_refused() -> None:
    """No channels, no targets, or all features dropped."""
    for settings in ({"channels": 0}, {"targets": 0}, {"dropout": 1.0}, {"dropout": -0.1}):
        with pytest.raises(UsageError, match="at least one channel"):
            CosmoFlow(32, **settings)
