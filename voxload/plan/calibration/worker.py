"""Ranks of a calibration, which `calibrate` starts: ``python -m voxload.plan.calibration.worker PLAN``.

All ranks measure at the same time: each is to be as slow as it will be among its neighbours.
"""

from __future__ import annotations

import json
import os
import platform
import random
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import chain, islice
from statistics import median
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from voxload.engine import NoExchange, shard
from voxload.grid import ProcessGrid, launched_as
from voxload.launch.collectives import all_gathered
from voxload.launch.devices import check_own, rank_device
from voxload.launch.processes import emit, run_rank
from voxload.launch.rendezvous import process_group
from voxload.launch.wire import decode, encode
from voxload.plan.calibration.measuring import (
    MessagePoint,
    Timed,
    clock_of,
    gathered,
    kernel_points,
    overheads,
    time_step,
)
from voxload.plan.calibration.networks import Case, Convolution, cases, convolutions, volumes
from voxload.plan.calibration.plan import CalibrationPlan, RankFindings
from voxload.plan.calibration.sharing import StepPoint, SumPoint, near_cube, step_points
from voxload.plan.costs.kernels import KernelPoints
from voxload.plan.trace.operation import Phase

COLLECTIVE_TIMEOUT = timedelta(minutes=10)
LARGEST_WORK, LARGEST_FLOPS = 10**7, 6e9
"""Of a network (`Case.work`) and of a convolution (`Convolution.work`) on the host: some tenths of a second a step."""
LARGEST_VOLUME = 2**24
"""Elements of volumes: 64 MiB in float32."""
_SEEDS = 1000
"""Ranks that draw convolutions of their own, at most: further ones draw what ranks of another job do."""
_YARDSTICK, _YARDSTICK_SEED = 16, 10**6
"""Convolutions that all ranks of all jobs measure, and what they are drawn with: no other draw has that."""
_FIRST, _LIGHT = 30, 60
"""Convolutions that come first, and the share of the largest that they take at most."""
_SMALL = 4
"""Networks that come first, the smallest ones: operations of every kind."""
_CONVOLUTIONS = 5
"""As many to one network."""
_SUMS = tuple(4**power * 4 for power in range(12))
"""Bytes of sums: 4 to 16 MiB."""
_MESSAGES = (
    *((1, 4, 4), (1, 16, 4), (4, 16, 8), (4, 32, 8), (8, 32, 32), (8, 64, 8), (16, 64, 16), (32, 64, 8)),
    *((32, 128, 4), (64, 128, 4)),
)
"""Channels, extents of the face and depth of blocks whose halos are sent."""
_REPEATS = 5
Tell = Callable[[dict[str, Any]], None]


def calibrate_rank(plan: CalibrationPlan, tell: Tell) -> list[RankFindings]:
    """Measure as one rank of the job; returns what all found."""
    rank, world_size = launched_as(os.environ)
    device = rank_device(plan.device)
    with process_group(rank, world_size, timeout=COLLECTIVE_TIMEOUT, kind=device.type):
        check_own(device)
        hear = tell if rank == 0 else _hush
        steps = list(_steps(plan, device, rank, hear)) if plan.seconds else []
        found = RankFindings(
            kernel_points(steps, device.type),
            tuple(overheads(steps)[phase] for phase in Phase) if steps else (),
            *_together(ProcessGrid((world_size, 1, 1), world_size, rank), device),
            _yardstick(device),
            _memory(device),
            _name(device),
        )
        return all_gathered(found, RankFindings) if world_size > 1 else [found]


def _steps(plan: CalibrationPlan, device: torch.device, rank: int, tell: Tell) -> Iterator[Timed]:
    """Yield steps of convolutions and networks in turns until the time is over, on each rank others."""
    scale = 1 if device.type == "cpu" else 50
    networks, seed = cases(LARGEST_WORK * scale), _SEEDS * plan.seed + rank
    small, others = networks[:_SMALL], networks[_SMALL:]
    random.Random(seed).shuffle(others)  # noqa: S311 - an order needs no secrecy
    turns = iter([*small, *volumes(LARGEST_VOLUME * scale), *others])
    begin = perf_counter()
    # Light ones first: however short the time, each of torch's implementations was met.
    light, all_sizes = (convolutions(LARGEST_FLOPS * scale / share, seed) for share in (_LIGHT, 1))
    for number, convolution in enumerate(chain(islice(light, _FIRST), all_sizes)):
        spent = perf_counter() - begin
        if spent >= plan.seconds:
            return
        yield _convolution(convolution, device)
        network = next(turns, None) if number % _CONVOLUTIONS == 0 else None
        if network is not None:
            yield from _network(network, device)
        tell({"event": "measured", "seconds": spent})


def _convolution(case: Convolution, device: torch.device, rounds: int = 0) -> Timed:
    model = case.make().to(device)
    x = torch.randn(case.batch, case.channels, *case.extents, device=device, requires_grad=not case.is_first)
    return time_step(model, x, torch.optim.SGD(model.parameters()), model, rounds=rounds)


def _network(case: Case, device: torch.device) -> Iterator[Timed]:
    """Yield what it takes as the engine runs it and, of what is no convolution, as torch itself does."""
    torch.manual_seed(0)
    grid = ProcessGrid((1, 1, 1), 1)
    model = case.make().to(device)
    network = shard(model, grid, shape=case.extents, exchange=NoExchange(grid))
    x = torch.randn(case.batch, case.channels, *case.extents, device=device)
    rounds = 1 if x.numel() > 2**20 else 0
    yield time_step(network, x, torch.optim.Adam(network.parameters()), model, rounds=rounds)
    if case.kind == "pointwise":
        padded = nn.Sequential(model, nn.ReplicationPad3d(1))
        yield time_step(padded, x, torch.optim.SGD(model.parameters()), padded, rounds=rounds)


def _together(
    grid: ProcessGrid, device: torch.device
) -> tuple[tuple[MessagePoint, ...], tuple[SumPoint, ...], tuple[StepPoint, ...]]:
    """Return what is measured of ranks that talk."""
    steps = tuple(step_points(ProcessGrid(near_cube(grid.world_size), grid.world_size, grid.rank), device))
    if grid.world_size == 1:
        return (), (), steps
    return tuple(_messages(grid, device)), tuple(_sums(device)), steps


def _yardstick(device: torch.device) -> tuple[KernelPoints, ...]:
    """Return what convolutions take that all ranks measure at once: neighbours that do something else disturb less."""
    scale = 1 if device.type == "cpu" else 50
    steps = []
    for convolution in islice(convolutions(LARGEST_FLOPS / 12 * scale, _YARDSTICK_SEED), _YARDSTICK):
        if dist.is_initialized():
            dist.barrier()
        steps.append(_convolution(convolution, device, rounds=_REPEATS))
    return kernel_points(steps, device.type)


def _messages(grid: ProcessGrid, device: torch.device) -> Iterator[MessagePoint]:
    """Yield what halos take along a line of all ranks, as the engine sends them."""
    for channels, face, depth in _MESSAGES:
        shape = (depth * grid.world_size, face, face)
        model = nn.Conv3d(channels, channels, 3, padding=1, groups=channels, device=device)
        network = shard(model, grid, shape=shape)
        x = torch.randn(1, channels, depth, face, face, device=device, requires_grad=True)
        step = time_step(network, x, torch.optim.SGD(network.parameters()), network, rounds=_REPEATS)
        yield from gathered(step.operations)


def _sums(device: torch.device) -> Iterator[SumPoint]:
    clock = clock_of(device)
    for nbytes in _SUMS:
        tensor = torch.ones(nbytes // 4, device=device)
        found = []
        for _ in range(_REPEATS):
            dist.barrier()
            begin = clock()
            dist.all_reduce(tensor)
            found.append(clock() - begin)
        yield SumPoint(nbytes, median(found))


def _memory(device: torch.device) -> int:
    if device.type == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(torch.cuda.get_device_properties(device).total_memory)


def _name(device: torch.device) -> str:
    return platform.processor() or platform.machine() if device.type == "cpu" else torch.cuda.get_device_name(device)


def _hush(event: dict[str, Any]) -> None:
    """Say nothing: one rank speaks for all."""


def work(text: str) -> None:
    """Measure as one rank of the job, by a plan as JSON; rank 0 tells what all found."""
    found = calibrate_rank(decode(text.encode(), CalibrationPlan), emit)
    if int(os.environ.get("RANK", "0")) == 0:
        emit({"event": "findings", "ranks": [json.loads(encode(each)) for each in found]})


if __name__ == "__main__":
    sys.exit(run_rank("voxload.plan.calibration.worker", sys.argv[1:], work))
