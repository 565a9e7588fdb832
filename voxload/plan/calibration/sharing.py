"""Sharing: how much longer ranks of a node take together than apart: they share cores, and wait for one another.

Small networks train on blocks of the same extents on any number of ranks, in turns of three ways: each rank on its own,
as blocks of one sample, and as replicas under DDP. What an exchange takes is told from whole steps: on a host whose
cores all compute, it waits for its turn on them for longer than messages take alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean, median

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from voxload.engine import NoExchange, shard
from voxload.engine.observe import Messages, Total
from voxload.grid import ProcessGrid
from voxload.plan.calibration.measuring import clock_of
from voxload.plan.calibration.networks import Mixed, Stack
from voxload.plan.costs.kernels import plain_point
from voxload.plan.costs.surface import not_negative
from voxload.plan.platform.calibration import Sharing
from voxload.plan.trace.operation import Operation
from voxload.plan.trace.step import squares, trace_step
from voxload.plan.trace.tracer import Tracer

Copying = Callable[[tuple[float, float]], float]
"""Returns how long it takes to read and write so many bytes, so many of them anew."""
_NETWORKS: tuple[tuple[Callable[[], nn.Module], int, tuple[int, int, int]], ...] = (
    (partial(Mixed, 2, 4, averages=False), 2, (8, 64, 64)),
    (partial(Mixed, 2, 16, averages=False), 2, (8, 32, 32)),
    (partial(Stack, 8, (3,) * 6, is_normalised=False), 8, (16, 32, 32)),
    (partial(Stack, 16, (3,) * 12, is_normalised=False), 16, (8, 16, 16)),
    (partial(Stack, 8, (1,) * 8, is_normalised=True), 8, (16, 32, 32)),
    (partial(Stack, 16, (3, 1, 1) * 3, is_normalised=True), 16, (8, 16, 32)),
)
"""What makes them, channels of the input, and extents of each rank's block."""
_ROUNDS, _FEW = 12, 5
"""Steps of each way, behind one that warms up; and where ranks share cores."""


@dataclass(frozen=True, slots=True)
class StepPoint:
    """What a step of one network took one rank."""

    apart: float
    """Seconds of a step in which no rank waits for another."""
    split: float
    """Of one in which ranks have blocks of one sample; 0 where there is one rank."""
    replicas: float
    """Of one whose gradients are averaged by DDP; 0 where there is one rank."""
    messages: int
    """Exchanges between blocks of a split step."""
    sums: int
    """Of a split step, over ranks."""
    sent: int
    """Bytes of them, the greater of what is sent and received."""
    roots: float
    """Of a split step: the sum over exchanges of the square root of the seconds that were computed since the last."""
    joined: tuple[tuple[float, float], ...]
    """Of each block that is joined with halos: bytes that are read and written, and those that are made anew."""


@dataclass(frozen=True, slots=True)
class SumPoint:
    """What a sum over all ranks took."""

    nbytes: int
    seconds: float


def near_cube(ranks: int) -> tuple[int, int, int]:
    """Return a grid of so many ranks, as even as there is one: the kind that plans mostly have.

    >>> near_cube(8), near_cube(4), near_cube(6)
    ((2, 2, 2), (2, 2, 1), (3, 2, 1))
    """
    found = [1, 1, 1]
    for factor in sorted(_primes(ranks), reverse=True):
        found[found.index(min(found))] *= factor
    first, second, third = sorted(found, reverse=True)
    return first, second, third


def _primes(number: int) -> Iterator[int]:
    factor = 2
    while number > 1:
        if number % factor:
            factor += 1
        else:
            number //= factor
            yield factor


def step_points(grid: ProcessGrid, device: torch.device) -> Iterator[StepPoint]:
    """Yield what steps take on a grid that all ranks are on."""
    for make, channels, block in _NETWORKS:
        yield _Case(make, channels, block, grid, device).measure()


class _Case:
    """One network in three ways."""

    def __init__(
        self,
        make: Callable[[], nn.Module],
        channels: int,
        block: tuple[int, int, int],
        grid: ProcessGrid,
        device: torch.device,
    ) -> None:
        self._clock, self._grid = clock_of(device), grid
        torch.manual_seed(0)
        self._x = torch.randn(1, channels, *block, device=device)
        alone = ProcessGrid((1, 1, 1), 1)
        depth, height, width = (extent * count for extent, count in zip(block, grid.spatial, strict=True))
        self._whole = depth, height, width
        self._make = make
        apart = shard(self._make().to(device), alone, shape=block, exchange=NoExchange(alone))
        self._ways: dict[str, nn.Module] = {"apart": apart}
        if grid.world_size > 1:
            self._ways["split"] = shard(self._make().to(device), grid, shape=self._whole)
            own = shard(self._make().to(device), alone, shape=block, exchange=NoExchange(alone))
            self._ways["replicas"] = DistributedDataParallel(own)

    def measure(self) -> StepPoint:
        """Return medians of steps, the ways in turns."""
        found: dict[str, list[float]] = {way: [] for way in self._ways}
        optimizers = {way: torch.optim.Adam(network.parameters()) for way, network in self._ways.items()}
        rounds = _ROUNDS if self._grid.world_size <= len(os.sched_getaffinity(0)) else _FEW
        for turn in range(1 + rounds):
            for way, network in self._ways.items():
                if self._grid.world_size > 1:
                    dist.barrier()
                begin = self._clock()
                squares(network(self._x)).backward()  # type: ignore[no-untyped-call] # torch leaves it untyped
                optimizers[way].step()
                if turn:
                    found[way].append(self._clock() - begin)
                optimizers[way].zero_grad()
        operations = self._exchanges()
        roots = _roots(self._ways["split"], self._x, self._clock) if "split" in self._ways else 0.0
        halos = [(each.exchanged, plain_point(each)) for each in operations if isinstance(each.exchanged, Messages)]
        messages = [(each, joined) for each, joined in halos if each.sent]
        return StepPoint(
            median(found["apart"]),
            median(found.get("split", [0.0])),
            median(found.get("replicas", [0.0])),
            len(messages),
            sum(isinstance(each.exchanged, Total) for each in operations),
            sum(max(sum(each.sent), sum(each.received)) for each, _ in messages),
            roots,
            tuple(joined for _, joined in messages),
        )

    def _exchanges(self) -> list[Operation]:
        with torch.device("meta"):
            model = self._make()
        step = trace_step(model, self._grid, self._whole, channels=self._x.shape[1])
        return [each for each in step.operations if each.exchanged is not None]


def _roots(network: nn.Module, x: Tensor, clock: Callable[[], float]) -> float:
    """Return what is said of `StepPoint.roots`, the median of three steps."""
    found = []
    for _ in range(3):
        tracer = Tracer(network, network, clock)
        with tracer:
            squares(network(x)).backward()  # type: ignore[no-untyped-call] # torch leaves it untyped
        tracer.close()
        total = since = 0.0
        for operation, seconds in zip(tracer.operations, tracer.seconds, strict=True):
            if operation.exchanged is None:
                since += seconds
            else:
                total, since = total + since**0.5, 0.0
        found.append(total)
    network.zero_grad()
    return median(found)


def sharing(
    count: int,
    ranks: Sequence[Sequence[StepPoint]],
    *,
    per_byte: float,
    copying: Copying,
    sums: Sequence[SumPoint],
    is_crowded: bool,
) -> Sharing:
    """Return what so many ranks of a node take together, but for how much longer they compute.

    Parameters
    ----------
    count
        How many.
    ranks
        What each of them measured, in one job or several.
    per_byte
        Seconds for each byte that is sent.
    copying
        Returns the seconds that joining a block takes from one of them.
    sums
        Of all ranks.
    is_crowded
        Whether there are more ranks than cores.
    """
    if count == 1:
        return Sharing(1)
    ours = _means(ranks)
    known = np.array([each.sent * per_byte + sum(map(copying, each.joined)) for each in ours])
    rows = np.array([(each.apart, each.messages, each.sums) for each in ours])
    steps = np.array([each.split for each in ours])
    if is_crowded:
        # Cores are never idle. What bytes take is known from larger messages than these; no step is all bytes.
        fit = not_negative(rows, np.maximum(steps - known, 0.1 * steps), steps)
        blocks, latency, sum_latency, jitter = *fit, 0.0
    else:
        rows = np.array([(each.messages, each.sums, each.roots) for each in ours])
        known = known + np.array([each.apart for each in ours])
        fit = not_negative(rows, np.maximum(steps - known, 0.0), steps)
        latency, sum_latency, jitter, blocks = *fit, 1.0
    error = np.median(np.abs((rows @ fit + known) / steps - 1))
    sizes, seconds = (np.array([getattr(each, name) for each in sums]) for name in ("nbytes", "seconds"))
    _, sum_per_byte = not_negative(np.stack([np.ones(len(sizes)), sizes], 1), seconds)
    whole = np.array([each.replicas for each in ours])
    if is_crowded:
        replicas, gradients = not_negative(np.array([(each.apart, 1.0) for each in ours]), whole, whole)
    else:
        apart = np.array([each.apart for each in ours])
        replicas, gradients = 1.0, max(0.0, float(np.median(whole - apart - jitter * np.sqrt(apart))))
    return Sharing(
        count,
        1.0,
        float(replicas),
        float(blocks),
        float(latency),
        per_byte,
        float(sum_latency),
        float(sum_per_byte),
        max(0.0, float(gradients - sum_latency)),
        float(jitter),
        error=float(error),
    )


def _means(ranks: Sequence[Sequence[StepPoint]]) -> list[StepPoint]:
    """Return for each network the means of all ranks."""
    return [_mean(points) for points in zip(*ranks, strict=True)]


def _mean(points: Sequence[StepPoint]) -> StepPoint:
    """Return the mean seconds of all ranks, with the messages of the one that has most."""
    return replace(
        max(points, key=lambda each: (each.messages, each.sent)),
        apart=fmean(each.apart for each in points),
        split=fmean(each.split for each in points),
        replicas=fmean(each.replicas for each in points),
    )
