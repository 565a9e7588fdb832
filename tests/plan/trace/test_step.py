"""Traces of steps, beside steps that virtual ranks run with voxels."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.engine.forward.split_plan_nets import Deep
from tests.support.splitting.functional import FunctionalUNet
from voxload.engine import Loopback, SplitPlan, shard
from voxload.engine.exchange.in_process import LoopbackRank, NoExchange, PendingLoopback
from voxload.engine.exchange.protocol import registered
from voxload.engine.observe import Messages, Total
from voxload.grid import ProcessGrid
from voxload.models import CosmoFlow, UNet3D
from voxload.plan.costs.memory import memory_peak
from voxload.plan.trace.operation import Phase
from voxload.plan.trace.step import trace_step, trace_volume

Sent = list[tuple[int, list[int], list[int]]]
Kernels = nn.Conv3d | nn.ConvTranspose3d


class CountingRank:
    """The exchange of a virtual rank that writes down what it carries."""

    carries_graph = False

    def __init__(self, inner: LoopbackRank) -> None:
        self._inner = inner
        self.messages: Sent = []
        self.totals: list[tuple[int, bool]] = []
        self.key = registered(self)

    def __deepcopy__(self, memo: dict[int, object]) -> CountingRank:
        return self

    def start(self, axis: int, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> PendingLoopback:
        """See Exchange."""
        sent, received = (sorted(each.nbytes for each in way.values()) for way in (outgoing, incoming))
        self.messages.append((axis, sent, received))
        return self._inner.start(axis, outgoing, incoming)

    def reduce(self, tensor: Tensor, *, world: bool) -> None:
        """See Exchange."""
        self.totals.append((tensor.nbytes, world))
        self._inner.reduce(tensor, world=world)

    def share(self, numbers: Any) -> list[tuple[int, ...]]:
        """See Exchange."""
        return self._inner.share(numbers)


CASES: list[Any] = [
    pytest.param(lambda: CosmoFlow(32), 4, 32, None, id="CosmoFlow"),
    pytest.param(lambda: UNet3D(1, 2, widths=(2, 4, 6)), 1, 16, None, id="UNet3D"),
    pytest.param(lambda: FunctionalUNet(1, 2, (4, 8)), 1, 16, None, id="of functions"),
    pytest.param(Deep, 2, 8, {"second": "filter", "third": "channel", "up": "filter,space,channel"}, id="planned"),
]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*whole on every rank:RuntimeWarning")
@pytest.mark.parametrize(("make", "channels", "extent", "layers"), CASES)
@pytest.mark.parametrize("spatial", [(2, 1, 2), pytest.param((2, 2, 2), marks=pytest.mark.long)], ids=str)
def test_messages_are_those_that_are_sent(make: Any, channels: int, extent: int, layers: Any, spatial: Any) -> None:
    """Of every rank, each message's bytes, in order, forward and backward; and each sum's."""
    shape = (extent,) * 3
    plan = None if layers is None else SplitPlan.of(layers)
    world = Loopback(ProcessGrid(spatial, prod(spatial)))
    exchanges = [CountingRank(world.rank(rank)) for rank in range(prod(spatial))]
    torch.manual_seed(1)
    models: list[nn.Module] = [make() for _ in exchanges]
    nets = [
        shard(model, world.grid.at(rank), shape=shape, exchange=exchanges[rank], plan=plan)
        for rank, model in enumerate(models)
    ]
    x = torch.randn(2, channels, *shape)

    def work(rank: int) -> None:
        own: Any = (..., *world.grid.at(rank).block(shape).slices)
        nets[rank](x[own]).square().sum().backward()

    world.run(work)
    with torch.device("meta"):
        model = make()
    for rank, exchange in enumerate(exchanges):
        traced = trace_step(model, world.grid.at(rank), shape, channels=channels, batch=2, plan=plan)
        told = [
            (each.exchanged.axis, sorted(each.exchanged.sent), sorted(each.exchanged.received))
            for each in traced.operations
            if isinstance(each.exchanged, Messages)
        ]
        assert told == exchange.messages
        totals = [each.exchanged for each in traced.operations if isinstance(each.exchanged, Total)]
        assert [(each.nbytes, each.is_world) for each in totals] == exchange.totals


def test_layers_have_their_operations() -> None:
    """A convolution's flops in both passes, and which layer it is; gradients are there from the last layer on."""
    with torch.device("meta"):
        model = UNet3D(1, 2, widths=(2, 4, 6))
    traced = trace_step(model, ProcessGrid((2, 1, 1), 2), (16,) * 3, channels=1, optimizer=torch.optim.Adam)
    forward = {each.path: each.flops for each in traced.of(Phase.FORWARD) if each.name == "aten.convolution"}
    convolutions = {
        path: each for path, each in model.named_modules() if isinstance(each, nn.Conv3d | nn.ConvTranspose3d)
    }
    assert forward.keys() == convolutions.keys()
    path, first = next(iter(convolutions.items()))
    assert forward[path] == 2 * first.weight.numel() * 8 * 16 * 16
    backward = {each.path: each.flops for each in traced.of(Phase.BACKWARD) if each.name == "aten.convolution_backward"}
    assert backward.keys() == convolutions.keys()
    names = [each.name for each in traced.gradients]
    assert sorted(names) == sorted(name for name, _ in model.named_parameters())
    assert names.index(next(name for name, _ in model.named_parameters())) > len(names) // 2
    assert traced.weights == sum(each.nbytes for each in [*model.parameters(), *model.buffers()])
    moments = 2 * sum(each.nbytes for each in model.parameters())
    assert traced.state == moments + 4 * len(list(model.parameters()))


def test_networks_that_are_planned_as_they_run_are_traced_once() -> None:
    """Planning runs the forward on shapes too; that is no part of the step."""
    with torch.device("meta"):
        model = FunctionalUNet(1, 2, (4, 8))
    for grid in (ProcessGrid((1, 1, 1), 1), ProcessGrid((2, 1, 1), 2)):
        step = trace_step(model, grid, (16,) * 3, channels=1)
        found = [each for each in step.of(Phase.FORWARD) if "convolution" in each.name]
        assert len(found) == len([each for each in model.modules() if isinstance(each, nn.Conv3d | nn.ConvTranspose3d)])
        assert all(each.path for each in found)
    whole = trace_volume(model, (16,) * 3, channels=1).on_blocks((1, 1, 1))
    assert len([each for each in whole.of(Phase.FORWARD) if "convolution" in each.name]) == len(found)


class Saved(nn.Module):
    """Layers of which it is known what they keep for the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv3d(2, 4, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the square of a sigmoid, of which autograd keeps both."""
        y: Tensor = torch.sigmoid(self.conv(x))
        return y.square()


def test_memory_is_what_is_held() -> None:
    """The peak is in the backward pass, with what each layer kept and what the one at work makes."""
    with torch.device("meta"):
        model = Saved()
    traced = trace_step(model, ProcessGrid((1, 1, 2), 2), (4, 4, 16), channels=2, loss=torch.sum)
    volume = 4 * (4 * 4 * 8) * 4  # bytes of four channels of half the voxels
    peak = memory_peak(traced)
    nbytes = peak.use.total - peak.use.weights
    # The sigmoid, which forward kept; its gradient, in two steps, the second of which is at work.
    assert 3 * volume <= nbytes <= 4 * volume + 256
    assert sum(each.nbytes for each in peak.held) == nbytes
    assert {each.name for each in peak.held if each.nbytes == volume} >= {"aten.sigmoid"}


class Plain(nn.Module):
    """Layers whose kernels allocate nothing but their results: convolutions of the host bring their own copies."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.group = nn.BatchNorm3d(8), nn.GroupNorm(2, 16)
        self.pool, self.up, self.head = nn.AvgPool3d(3, 2, 1), nn.Upsample(scale_factor=2), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Return numbers of samples."""
        y = self.norm(torch.cat([x, x.sigmoid()], dim=1))
        y = torch.cat([y, self.up(self.pool(y * y).tanh())], dim=1)
        found: Tensor = self.head(functional.silu(self.group(y)).mean((2, 3, 4)))
        return found


def test_memory_is_what_torch_allocates(tmp_path: Path) -> None:
    """The most that torch's allocator has given at once in a step with voxels, to a twentieth."""
    shape, grid = (16, 16, 32), ProcessGrid((1, 1, 2), 2)
    model = Plain()
    net = shard(model, grid, shape=shape, exchange=NoExchange(grid))
    x = torch.randn(1, 4, *grid.block(shape).shape)
    net(x).square().sum().backward()  # what is kept from the first pass on
    model.zero_grad(set_to_none=True)
    with torch.profiler.profile(profile_memory=True) as profile:
        net(x).square().sum().backward()
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    seen = [each["args"] for each in events if each.get("name") == "[memory]"]
    changes = [each["Bytes"] for each in seen if each["Device Type"] == 0]
    measured = max(accumulate(changes))
    with torch.device("meta"):
        twin = Plain()
    traced = trace_step(twin, grid, shape, channels=4)
    use = memory_peak(traced).use
    assert use.total - use.weights == pytest.approx(measured, rel=0.05)
