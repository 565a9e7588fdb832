"""Claim: from ParaDL's machine constants follows its ranking of strategies, and its I/O that is several times the rest.

A. Kahira et al., An Oracle for Guiding Large-Scale Model/Hybrid Parallel Training of Convolutional Neural Networks
(HPDC 2021, arXiv 2104.09075), and its technical report; networks and batches are those of its scripts
(ankahira/paraDL): ResNet-50 with 64 samples a group of 4 GPUs, 64 for channel and 128 for filter parallelism over all
GPUs; CosmoFlow with a sample a node, its first two convolutions and pools split over 4 GPUs and the rest computed by
each.

Said: seconds by `voxload.plan`'s machine file of ABCI; a V100 is taken to reach 0.7 of its peak, and of CosmoFlow the
seconds of a sample are those that the authors measured. Sums are rings, a filter-parallel layer gathers what it takes
and scatters the sum of its gradient, a channel-parallel one the other way round (Dryden et al., SC 2019). Wanted: the
same order.

Reading: a leader of each node reads the whole sample and scatters it, as the authors did; or each of its GPUs reads its
block while the step before computes, as voxload does. No bandwidth of ABCI's storage was published: that of the cluster
in NoPFS's paper (machine nopfs-cluster) stands in.

    python bench/paradl.py [--json]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness.script import finish, parser
from voxload.plan.costs.speeds import Link, Roofline
from voxload.plan.platform import files
from voxload.plan.platform.platform import Platform
from voxload.plan.trace.operation import Phase
from voxload.plan.trace.step import trace_volume
from voxload.prefetch import machines

IMAGES, ITEM, NODE = 1_281_167, 4, 4
"""Of ImageNet; bytes of a number; GPUs of a node."""
PUBLISHED_EPOCHS = {
    ("data + spatial", 64): 244.0,
    ("data + filter", 64): 395.0,
    ("filter", 64): 18364.0,
    ("channel", 64): 20858.0,
    ("data + spatial", 256): 73.0,
    ("data + filter", 256): 124.0,
}
"""Seconds of an epoch of ResNet-50, measured."""
PUBLISHED_STEPS = {(512, 16): 6.19, (512, 32): 6.97, (256, 16): 0.177, (256, 32): 0.212}
"""Seconds of an iteration of CosmoFlow, measured, by extent and GPUs; reading included for 512 alone."""
COSMOFLOW_SECONDS = 2.108
"""Of computing a sample of 4 x 512^3 on one V100, measured."""


@dataclass(frozen=True, slots=True)
class Row:
    """One figure beside what was published."""

    network: str
    strategy: str
    gpus: int
    said: float
    published: float
    ratio: float
    """Said over published."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Layer:
    """A convolution or dense layer: elements of one sample."""

    taken: int
    given: int
    weights: int
    work: int
    """Floating-point operations forward."""
    window: int
    """Extent of its kernel."""
    extent: int
    """Of what it takes."""


def main() -> int:
    """Say and print."""
    words = parser(__doc__).parse_args()
    rows = [*_resnet(files.load("abci")), *_cosmoflow(files.load("abci"))]
    return finish(words, rows, _is_right)


def _resnet(platform: Platform) -> Iterator[Row]:
    layers = resnet50()
    order = []
    for (strategy, gpus), published in PUBLISHED_EPOCHS.items():
        batch = {"filter": 128, "channel": 64}.get(strategy, 64 * gpus // NODE)
        seconds = _step(strategy, gpus, batch, layers, platform) * IMAGES / batch
        yield Row("ResNet-50", strategy, gpus, seconds, published, seconds / published, "seconds of an epoch")
        if gpus == 64:
            order.append((seconds, published))
    same = sorted(order) == sorted(order, key=lambda pair: pair[1])
    yield Row("ResNet-50", "order of strategies", 64, float(same), 1.0, float(same), "1: the same")


def _step(strategy: str, gpus: int, batch: int, layers: list[Layer], platform: Platform) -> float:
    """Return the seconds of a step."""
    rate = platform.device.flops["float32"]
    computing = 3 * batch * sum(layer.work for layer in layers) / rate / gpus
    weights = ITEM * sum(layer.weights for layer in layers)
    if strategy in ("filter", "channel"):
        link = _between(platform)
        first = layers[0]
        if strategy == "channel":  # three channels cannot be dealt out: every rank computes the first layer
            computing += 3 * batch * first.work / rate * (1 - 1 / gpus)
        moved = [layer.taken if strategy == "filter" else layer.given for layer in layers[1:]]
        return computing + sum(2 * _gathered(batch * each * ITEM, gpus, link) for each in moved)
    groups = gpus // NODE
    own = batch // groups
    if strategy == "data + filter":
        between = _ring(weights / NODE, groups, _between(platform))
        inside = sum(2 * _gathered(own * layer.taken * ITEM, NODE, platform.within) for layer in layers[1:])
        return computing + inside + between
    halos = sum(2 * _halo(layer, own, platform.within) for layer in layers if layer.window > 1)
    return computing + halos + _ring(weights, gpus, _between(platform))


def _between(platform: Platform) -> Link:
    """Return the link from node to node."""
    return platform.fabric(NODE, is_alone=False).between


def _ring(nbytes: float, ranks: int, link: Link) -> float:
    """Return the seconds of a sum over ranks in a ring."""
    return 2 * (ranks - 1) * (link.latency + nbytes / ranks * link.seconds_per_byte)


def _gathered(nbytes: float, ranks: int, link: Link) -> float:
    """Return the seconds in which each rank gets all of what they have together, or its part of the sum of that."""
    return (ranks - 1) * (link.latency + nbytes / ranks * link.seconds_per_byte)


def _halo(layer: Layer, samples: int, link: Link) -> float:
    """Return the seconds of the rows that blocks of an image exchange with two neighbours."""
    row = layer.taken // layer.extent
    return 2 * link.latency + samples * 2 * (layer.window // 2) * row * ITEM * link.seconds_per_byte


def resnet50() -> list[Layer]:
    """Return the convolutions of ResNet-50 and its dense layer (He et al., CVPR 2016, table 1)."""
    layers = [_convolution(3, 64, 7, 224, 2)]
    before, extent = 64, 56
    for number, (blocks, width) in enumerate(zip((3, 4, 6, 3), (64, 128, 256, 512), strict=True)):
        for block in range(blocks):
            stride = 2 if number and not block else 1
            if not block:
                layers.append(_convolution(before, 4 * width, 1, extent, stride))
            layers += [
                _convolution(before, width, 1, extent, 1),
                _convolution(width, width, 3, extent, stride),
                _convolution(width, 4 * width, 1, extent // stride, 1),
            ]
            before, extent = 4 * width, extent // stride
    return [*layers, Layer(2048, 1000, 2_049_000, 2 * 2_048_000, 1, 1)]


def _convolution(channels: int, filters: int, window: int, extent: int, stride: int) -> Layer:
    outputs = (extent // stride) ** 2
    weights = channels * filters * window**2
    return Layer(channels * extent**2, filters * outputs, weights, 2 * weights * outputs, window, extent)


class CosmoFlow(nn.Module):
    """The network as the authors train it."""

    def __init__(self, extent: int) -> None:
        super().__init__()
        widths = (4, 16, 32, 64, 128, 256, 256, 128)
        kernels, strides, pads = (3, 3, 3, 3, 2, 2, 2), (1, 1, 1, 2, 1, 1, 1), (1, 1, 1, 1, 1, 1, 1)
        self.layers = nn.ModuleList(
            nn.Conv3d(widths[place], widths[place + 1], kernels[place], strides[place], pads[place], bias=False)
            for place in range(7)
        )
        with torch.device("meta"):
            features = prod(self._features(torch.empty(1, 4, extent, extent, extent)).shape)
        self.dense = nn.Sequential(nn.Linear(features, 2048), nn.Linear(2048, 256), nn.Linear(256, 4))

    def _features(self, x: Tensor) -> Tensor:
        for place, layer in enumerate(self.layers):
            x = functional.leaky_relu(layer(x))
            x = functional.avg_pool3d(x, 2) if place < 6 else x
        return x

    def forward(self, x: Tensor) -> Tensor:
        """Return four numbers of each sample."""
        numbers: Tensor = self.dense(self._features(x).flatten(1))
        return numbers


def _cosmoflow(platform: Platform) -> Iterator[Row]:
    for (extent, gpus), published in PUBLISHED_STEPS.items():
        with torch.device("meta"):
            model = CosmoFlow(extent)
        split, rest, moved = _shares(model, extent, platform)
        sample = COSMOFLOW_SECONDS * (extent / 512) ** 3
        computing = sample * (split / NODE + rest)
        gathering = 2 * _gathered(moved * ITEM, NODE, platform.within)
        weights = ITEM * sum(weight.numel() for weight in model.parameters())
        step = computing + gathering + _ring(weights, gpus, _between(platform))
        note = f"{step:.3g} s computing and sending"
        nbytes = 4 * extent**3 * ITEM
        leader, blocks = _reading(nbytes, gpus)
        if extent == 512:
            yield Row(
                "CosmoFlow 512", "leader reads", gpus, step + leader, published, (step + leader) / published, note
            )
            times = leader / step
            yield Row("CosmoFlow 512", "I/O of the leader", gpus, times, 4.0, times / 4, "times computing and sending")
            stall = max(0.0, blocks - step)
            yield Row("CosmoFlow 512", "blocks ahead", gpus, step + stall, published, (step + stall) / published, note)
        else:
            yield Row("CosmoFlow 256", "in memory", gpus, step, published, step / published, "seconds of a step")


def _shares(model: CosmoFlow, extent: int, platform: Platform) -> tuple[float, float, int]:
    """Return the shares of time of the layers that are split and of the rest, and what is gathered behind them."""
    trace = trace_volume(model, (extent,) * 3, channels=4).on_blocks((1, 1, 1))
    kernels = Roofline(platform.device.flops["float32"], platform.device.bandwidth, platform.device.launch)
    seconds = [0.0, 0.0]
    turn = {"layers.0": 0, "layers.1": 0}
    last = 0
    for each in trace.operations:
        if each.phase is Phase.UPDATE:
            continue
        if each.path:
            last = turn.get(each.path, 1)
        # What comes behind a layer, its rectifier and pool, has no path of its own.
        extents = max((shape[-1] for shape in each.shapes if len(shape) == 5), default=0)
        is_split = extents > extent // 4 if not each.path else last == 0
        seconds[0 if is_split else 1] += kernels.seconds(each)
    whole = sum(seconds)
    return seconds[0] / whole, seconds[1] / whole, 32 * (extent // 4) ** 3


def _reading(nbytes: int, gpus: int) -> tuple[float, float]:
    """Return the seconds in which leaders read whole samples and scatter them, and in which all read their blocks."""
    machine = machines.load("nopfs-cluster")
    nodes = gpus // NODE
    scatter = nbytes * (NODE - 1) / NODE / 16e9
    leader = nodes * nbytes / machine.storage.read.of(nodes) + scatter
    return leader, nodes * nbytes / machine.storage.read.of(gpus)


def _is_right(row: Row) -> bool:
    return row.said == 1.0 if row.strategy == "order of strategies" else True


if __name__ == "__main__":
    sys.exit(main())
