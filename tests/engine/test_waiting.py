"""The host does not wait for the device: a step of a split network asks for all of its work, and goes on."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from bench.networking.network import Network
from bench.networking.own import OWN
from voxload.engine import NoExchange, shard
from voxload.grid import ProcessGrid
from voxload.models import CosmoFlow, UNet3D

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("default:Synchronization debug mode:UserWarning"),  # torch's, that it may miss some
]

SHAPE = (32, 32, 32)
LAYERS: dict[str, nn.Module] = {
    "average": nn.AvgPool3d(3, 2, padding=1, count_include_pad=False),
    "batch": nn.BatchNorm3d(2),
    "channels": nn.Dropout3d(0.5),
    "dropout": nn.Dropout(0.5),
    "group": nn.GroupNorm(2, 2),
    "instance": nn.InstanceNorm3d(2, affine=True),
    "mean": nn.AdaptiveAvgPool3d(2),
    "reflected": nn.Conv3d(2, 2, 3, padding=1, padding_mode="reflect"),
    "strided": nn.Conv3d(2, 2, 3, stride=2, padding=1),
    "transposed": nn.ConvTranspose3d(2, 2, 4, stride=2, padding=1),
    "trilinear": nn.Upsample(scale_factor=2, mode="trilinear"),
}


def _step(network: nn.Module, x: Tensor) -> None:
    found = [leaf for leaf in tree_leaves(network(x)) if isinstance(leaf, Tensor) and leaf.requires_grad]
    torch.stack([leaf.float().square().mean() for leaf in found]).sum().backward()  # type: ignore[no-untyped-call] # torch's


def _without_waiting(network: nn.Module, x: Tensor, device: torch.device) -> None:
    """Take a step that raises where the host waits, after one in which plans and kernels may be made."""
    _step(network, x)
    if device.type != "cuda":
        _step(network, x)
        return
    torch.cuda.synchronize()
    try:
        torch.cuda.set_sync_debug_mode("error")
        _step(network, x)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("join", ["pad", "patch", "add"])
@pytest.mark.parametrize("name", sorted(LAYERS))
def test_no_layer_waits_for_the_device(name: str, join: str, device: torch.device) -> None:
    """One of eight ranks, whose messages do not travel: what is left is the host's own work."""
    grid = ProcessGrid((2, 2, 2), 8)
    layers = nn.Sequential(nn.Conv3d(2, 2, 1), LAYERS[name]).to(device)
    network = shard(layers, grid, shape=SHAPE, join=join, exchange=NoExchange(grid))
    _without_waiting(network, torch.randn(1, 2, 16, 16, 16, device=device), device)


@pytest.mark.long
@pytest.mark.parametrize("name", ["cosmoflow", "unet3d"])
def test_no_network_waits_for_the_device(name: str, device: torch.device) -> None:
    """Nor does a whole network, of bfloat16 and with channels last."""
    network = CosmoFlow(32, 1, 2, dropout=0.5) if name == "cosmoflow" else UNet3D(1, 2, widths=(2, 4, 6))
    grid = ProcessGrid()
    split = shard(network.to(device), grid, shape=SHAPE, exchange=NoExchange(grid))
    x = torch.randn(1, 1, *SHAPE, device=device).contiguous(memory_format=torch.channels_last_3d)
    with torch.autocast(device.type, torch.bfloat16):
        _without_waiting(split, x, device)


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("network", [each for each in OWN if len(each.shape) == len(SHAPE)], ids=lambda each: each.name)
@pytest.mark.filterwarnings("default:.*whole on every rank:RuntimeWarning")
def test_no_own_forward_waits_for_the_device(network: Network, device: torch.device) -> None:
    """Nor do networks that run their own forward, once it is planned."""
    extents = (16, 16, 16)
    grid = ProcessGrid((2, 2, 1), 4)
    model = network.build(extents).to(device)
    split = shard(model, grid, shape=extents, exchange=NoExchange(grid))
    own = grid.block(extents).slices
    x = torch.randn(2, network.channels, *extents, device=device)[(slice(None), slice(None), *own)].contiguous()
    _step(split, x)  # of a shape seen for the first time all results are compared
    _without_waiting(split, x, device)
