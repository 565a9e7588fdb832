"""Networks of MONAI, as they are, on blocks: residual, dense, attending and transforming ones."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.engine.forward.recorded import recorded
from tests.engine.forward.test_running import errors_of
from voxload.engine.forward.planning import plan_forward
from voxload.engine.forward.sharding import Factor, Sharding

pytestmark = pytest.mark.long  # to import MONAI takes longer than to run most of them

NETWORKS: dict[str, tuple[Callable[[Any], nn.Module], int]] = {
    "BasicUNet": (lambda nets: nets.BasicUNet(3, 1, 2, features=(4, 4, 8, 8, 16, 4)), 32),
    "UNet": (lambda nets: nets.UNet(3, 1, 2, (4, 8, 16), (2, 2), num_res_units=2), 16),
    "AttentionUnet": (lambda nets: nets.AttentionUnet(3, 1, 2, (4, 8, 16), (2, 2)), 16),
    "SegResNet": (lambda nets: nets.SegResNet(3, 8, 1, 2, blocks_down=(1, 1), blocks_up=(1,)), 16),
    "HighResNet": (lambda nets: nets.HighResNet(3, 1, 2), 16),
    "VNet": (lambda nets: nets.VNet(3, 1, 2), 32),
    "DenseNet121": (
        lambda nets: nets.DenseNet121(3, 1, 2),
        64,
    ),  # of 32 one voxel is left, and two samples have no statistics
    "SEResNet50": (lambda nets: nets.SEResNet50(spatial_dims=3, in_channels=1, num_classes=2, layers=(1, 1, 1, 1)), 64),
    "MedNeXt": (lambda nets: nets.MedNeXt(3, 4, 1, 2), 32),
    "DynUNet with deep supervision": (
        lambda nets: nets.DynUNet(
            3, 1, 2, [3, 3, 3], [1, 2, 2], [2, 2], filters=[4, 8, 16], deep_supervision=True, deep_supr_num=1
        ),
        16,
    ),
}
"""Networks, and the extent of a volume that they take."""
TOLERANCE = 1e-11
"""These are deep: rounding grows."""


@pytest.fixture(params=NETWORKS)
def network(request: pytest.FixtureRequest) -> tuple[nn.Module, int]:
    """Return a network in training that drops nothing, and the extent of a volume that it takes."""
    pytest.importorskip("monai")
    torch.manual_seed(0)
    make, extent = NETWORKS[request.param]
    model = make(importlib.import_module("monai.networks.nets"))
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
    return model, extent


def test_a_network_gives_split_what_it_gives_whole(network: tuple[nn.Module, int]) -> None:
    """Results, all gradients and running statistics, on four blocks."""
    model, extent = network
    errors = errors_of(model, torch.randn(2, 1, extent, extent, extent, dtype=torch.float64), (2, 1, 2))
    assert max(errors.values()) <= TOLERANCE, max(errors.items(), key=lambda item: item[1])


def test_nothing_of_it_runs_on_the_whole(network: tuple[nn.Module, int]) -> None:
    """Every call has a split form."""
    model, extent = network
    factors = [Factor(extent, axis, (0, extent // 2, extent)) for axis in range(3)]
    given = Sharding((*Sharding.whole((2, 1)).dims, *((factor,) for factor in factors)))
    recording = recorded(model, torch.empty(2, 1, extent, extent, extent))
    assert not plan_forward(recording, [given]).fallbacks
