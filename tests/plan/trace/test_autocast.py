"""Steps under autocast without data, beside what torch's own does on the host."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from voxload.errors import UsageError
from voxload.grid import ProcessGrid
from voxload.models import CosmoFlow, UNet3D
from voxload.plan.costs.memory import memory_peak
from voxload.plan.costs.speeds import Roofline
from voxload.plan.forecast.forecast import Oracle
from voxload.plan.forecast.layerwise import LayerChooser
from voxload.plan.forecast.setups import Setup
from voxload.plan.forecast.training import Training
from voxload.plan.platform import files
from voxload.plan.trace.autocast import AutocastOnMeta
from voxload.plan.trace.operation import Phase
from voxload.plan.trace.step import squares, trace_step
from voxload.plan.trace.tracer import Tracer

ALONE = ProcessGrid((1, 1, 1), 1)


NETWORKS: list[Any] = [
    pytest.param(lambda: UNet3D(1, 3, widths=(4, 8)), 1, id="UNet3D"),
    pytest.param(lambda: CosmoFlow(64, 4), 4, id="CosmoFlow"),
]


class Mixed(nn.Module):
    """Layers of every kind that the host's autocast and CUDA's treat alike."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv3d(2, 4, 3, padding=1), nn.Conv3d(4, 4, 3, stride=2, padding=1)
        self.norm, self.up = nn.BatchNorm3d(4), nn.ConvTranspose3d(4, 2, 2, stride=2)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, 3)."""
        y = functional.relu(self.norm(self.first(x)))
        z = self.up(self.second(y))
        z = torch.cat([z, x], 1)
        numbers: Tensor = self.head(z.mean((2, 3, 4)))
        return numbers


def _types(device: str, mode: AbstractContextManager[Any]) -> list[tuple[str, str, Phase]]:
    torch.manual_seed(0)
    model = Mixed().to(device)
    tracer = Tracer(model, model)
    with tracer:
        with mode:
            result = squares(model(torch.empty(2, 2, 8, 8, 8, device=device)))
        result.backward()  # type: ignore[no-untyped-call] # torch leaves it untyped
    tracer.close()
    kinds = ("aten.convolution", "aten.addmm", "aten.mm", "aten.relu", "aten.cat", "aten.threshold")
    return [(each.name, each.dtype, each.phase) for each in tracer.operations if each.name.startswith(kinds)]


def test_types_are_those_of_torch() -> None:
    """Of what is computed in both passes, and how often weights are cast."""
    wanted = _types("cpu", torch.autocast("cpu", torch.bfloat16))
    found = _types("meta", AutocastOnMeta(torch.bfloat16))
    assert found == wanted
    assert {dtype for _, dtype, _ in found} == {"bfloat16", "float32"}


def test_a_weight_is_cast_once() -> None:
    """However many layers take it."""
    layer = nn.Linear(3, 3, device="meta")
    x = torch.empty(2, 3, device="meta")
    tracer = Tracer(layer, layer)
    with tracer, AutocastOnMeta(torch.bfloat16):
        layer(layer(x))
    tracer.close()
    assert sum(each.name == "aten._to_copy" for each in tracer.operations) == 3  # weight, bias and x


@pytest.mark.parametrize("grid", [ALONE, ProcessGrid((2, 1, 1), 2)], ids=["whole", "split"])
@pytest.mark.parametrize(("make", "channels"), NETWORKS)
def test_less_is_kept(make: Any, channels: int, grid: ProcessGrid) -> None:
    """As much work, in fewer bytes; weights and gradients stay as large as they are."""
    with torch.device("meta"):
        model = make()
    steps = [
        trace_step(model, grid, (64, 64, 64), channels=channels, optimizer=torch.optim.Adam, autocast=dtype)
        for dtype in (None, torch.bfloat16)
    ]
    plain, cast = (memory_peak(each).use for each in steps)
    assert cast.weights == plain.weights
    assert cast.state == plain.state
    assert 0.4 * plain.total < cast.total < 0.95 * plain.total
    before, after = (sum(each.flops for each in step.operations) for step in steps)
    assert after == before
    assert all(each.dtype == "bfloat16" for each in steps[1].operations if each.name == "aten.convolution")


def test_plans_tell_it_apart() -> None:
    """Convolutions run at the type's own speed, all else at float32's; a machine that knows no such type says so."""
    h100, setup = files.load("h100"), Setup((1, 1, 1), 1, 1)
    trainings = [Training("cosmoflow", (4, 64, 64, 64), 1, dtype=dtype) for dtype in ("float32", "bfloat16")]
    said = [Oracle(each, h100).forecast(setup) for each in trainings]
    assert said[1].time.total < said[0].time.total
    assert said[1].memory.use.total < said[0].memory.use.total
    kernels = h100.kernels("bfloat16", 1)
    assert isinstance(kernels, Roofline)
    assert kernels.flops == h100.kernels("float32", 1).flops  # type: ignore[attr-defined] # a Roofline as well
    assert kernels.others == {"bfloat16": h100.device.flops["bfloat16"]}
    with pytest.raises(UsageError, match="no speed for bfloat16"):
        files.load("lassen").kernels("bfloat16", 1)
    with pytest.raises(UsageError, match="without --amp"):
        LayerChooser(Oracle(trainings[1], h100), Setup((2, 1, 1), 1, 1))
