"""Networks cut into parts: what parts give one after the other is what the network gives, bit for bit."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from voxload.engine import pipeline_cuts, pipeline_parts
from voxload.errors import UsageError
from voxload.models import CosmoFlow, UNet3D

SHAPE = (32, 32, 32)


class Residual(nn.Module):
    """Skips, a parameter of its own, a layer that is used twice and one that changes what it takes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv3d(2, 4, 3, padding=1), nn.BatchNorm3d(4)
        self.twice, self.act = nn.Conv3d(4, 4, 1), nn.ReLU(inplace=True)
        self.scale = nn.Parameter(torch.full((1, 4, 1, 1, 1), 0.5))
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, 3)."""
        y = self.act(self.norm(self.stem(x)))
        z = functional.silu(self.twice(y) * self.scale) + y
        z = self.twice(z) + y
        numbers: Tensor = self.head(z.mean((2, 3, 4)))
        return numbers


class Shapely(nn.Module):
    """A number that goes past layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Conv3d(2, 2, 1) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, 2, voxels)."""
        count = x.shape[0]
        y: Tensor = self.third(self.second(self.first(x)))
        return y.reshape(count, 2, -1)


class Moody(nn.Module):
    """Another computation for what a trace follows than for a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv3d(2, 2, 1), nn.Conv3d(2, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, 2, D, H, W)."""
        y: Tensor = self.first(x)
        z: Tensor = self.second(y) if type(y) is Tensor else y
        return z


NETWORKS: dict[str, Any] = {
    "cosmoflow": (lambda: CosmoFlow(32, 2), 2),
    "unet": (lambda: UNet3D(1, 2, widths=(4, 8, 8)), 1),
    "residual": (Residual, 2),
}


def _made(name: str) -> tuple[nn.Module, int]:
    torch.manual_seed(1)
    make, channels = NETWORKS[name]
    return make().double(), channels


def _run(parts: list[nn.Module], x: Tensor) -> Tensor:
    values: tuple[Tensor, ...] = (x,)
    for part in parts:
        given: Any = part(*values)
        values = given if isinstance(given, tuple) else (given,)
    return values[0]


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(sorted(NETWORKS)), st.data())
def test_parts_are_the_network(name: str, data: Any) -> None:
    """Results, gradients, statistics and state dicts, wherever it is cut."""
    model, channels = _made(name)
    names = [each.name for each in pipeline_cuts(model, SHAPE, channels=channels)]
    cuts = [each for each in names if data.draw(st.booleans())]
    other = copy.deepcopy(model)
    parts = pipeline_parts(other, cuts, shape=SHAPE, channels=channels)
    assert len(parts) == len(cuts) + 1
    x = torch.randn(2, channels, *SHAPE, dtype=torch.float64)
    for is_training in (False, True):
        model.train(is_training)
        for part in parts:
            part.train(is_training)
        torch.manual_seed(2)
        wanted = model(x)
        torch.manual_seed(2)
        found = _run(parts, x)
        assert torch.equal(found, wanted)
    for result in (wanted, found):
        result.square().sum().backward()
    states: dict[str, Tensor] = {}
    for part in parts:
        assert not states.keys() & part.state_dict().keys()
        states |= part.state_dict()
    assert states.keys() == model.state_dict().keys()
    for key, value in model.state_dict().items():
        assert torch.equal(states[key], value), key
    grads = {key: each.grad for part in parts for key, each in part.named_parameters()}
    for key, each in model.named_parameters():
        assert each.grad is not None
        assert torch.equal(*(one for one in (grads[key], each.grad) if one is not None)), key


def test_cuts_say_what_goes_across() -> None:
    """One volume in CosmoFlow; in a U-Net those that skips take, too."""
    model, channels = _made("unet")
    cuts = {each.name: each.shapes for each in pipeline_cuts(model, SHAPE, channels=channels)}
    assert cuts["bottom_first_conv"] == ((1, 8, 8, 8, 8), (1, 8, 16, 16, 16), (1, 4, 32, 32, 32))
    assert cuts["encoder_0_second_relu"] == ((1, 4, 32, 32, 32),)
    model, channels = _made("cosmoflow")
    assert all(len(each.shapes) == 1 for each in pipeline_cuts(model, SHAPE, channels=channels))


def test_a_network_is_cut_only_where_it_can_be() -> None:
    """Not between two uses of a layer, in front of what changes its input, or where a number goes across."""
    model, channels = _made("residual")
    names = [each.name for each in pipeline_cuts(model, SHAPE, channels=channels)]
    assert {"stem", "act", "twice_1", "add_1"} <= set(names)
    assert not {"norm", "twice", "mul", "silu", "add"} & set(names)
    for cut, why in (("norm", "act, which changes in place"), ("silu", "weights that layers on both sides share")):
        with pytest.raises(UsageError, match=why):
            pipeline_parts(model, [cut], shape=SHAPE, channels=channels)
    with pytest.raises(UsageError, match="'nowhere'"):
        pipeline_parts(model, ["nowhere"], shape=SHAPE, channels=channels)
    with pytest.raises(UsageError, match="in which they run"):
        pipeline_parts(model, ["act", "stem"], shape=SHAPE, channels=channels)
    assert pipeline_cuts(Shapely(), SHAPE, channels=2) == []


def test_what_no_trace_keeps_is_refused() -> None:
    """Parts of it would be of another network."""
    with pytest.raises(UsageError, match="another computation than its trace"):
        pipeline_cuts(Moody(), SHAPE, channels=2)
