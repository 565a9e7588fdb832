"""Measuring: what the operations of a training step take on this rank, each timed where it runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import torch
from torch import Tensor, nn

from voxload.engine.observe import Messages
from voxload.plan.costs.kernels import ANY, KernelPoints, kind_of, plain_point, point_of
from voxload.plan.trace.operation import Operation, Phase
from voxload.plan.trace.step import squares
from voxload.plan.trace.tracer import Tracer

_FEWEST, _MOST_ROUNDS, _LONG = 2, 10, 0.15
"""Rounds of which the median counts, behind one that warms up; and the seconds after which there are no more."""
_SMALL = 0.1
"""Seconds of a step, at most, from which is told what Python takes: of longer ones that is noise."""
_COMMON = ("aten.add", "aten.mul", "aten.relu", "aten.sub", "aten.div", "aten.clone", "aten.cat")
"""Operations that read and write, from which is told what others take."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A training step that was timed."""

    operations: tuple[tuple[Operation, float], ...]
    """With their seconds."""
    parts: dict[Phase, float]
    """Seconds of each part of a step in which nobody looked."""


def clock_of(device: torch.device) -> Callable[[], float]:
    """Return a clock that waits for a device first."""
    if device.type == "cpu":
        return perf_counter

    def now() -> float:
        torch.accelerator.synchronize(device)
        return perf_counter()

    return now


def time_step(
    network: nn.Module, x: Tensor, optimizer: torch.optim.Optimizer, model: nn.Module, *, rounds: int = 0
) -> Timed:
    """Return what a training step of a network takes; its weights change.

    Parameters
    ----------
    network
        What runs.
    x
        Its input.
    optimizer
        Of its parameters.
    model
        The network as it was before it was split: its modules' paths are told. Where it is what runs, steps in which
        nobody looks are left out.
    rounds
        Of which the median counts, the same on ranks that talk; 0 for as many as there is time for.
    """
    clock = clock_of(x.device)
    is_network = network is not model
    looked: list[list[float]] = []
    parts = defaultdict[Phase, list[float]](list)
    operations: list[Operation] = []
    begin = perf_counter()
    for number in range((rounds or _MOST_ROUNDS) + 1):
        if not rounds and number > _FEWEST and perf_counter() - begin > _LONG:
            break
        optimizer.zero_grad()
        for phase, seconds in _plain(network, x, optimizer, clock) if is_network else ():
            if number:
                parts[phase].append(seconds)
        optimizer.zero_grad()
        tracer = Tracer(model, network, clock)
        try:
            with tracer:
                squares(network(x)).backward()  # type: ignore[no-untyped-call] # torch leaves it untyped
                tracer.phase = Phase.UPDATE
                optimizer.step()
        finally:
            tracer.close()
        if number and (not operations or len(operations) == len(tracer.operations)):
            operations = tracer.operations
            looked.append(tracer.seconds)
    medians = [median(each) for each in zip(*looked, strict=True)]
    return Timed(tuple(zip(operations, medians, strict=True)), {phase: median(each) for phase, each in parts.items()})


def gathered(operations: Iterable[tuple[Operation, float]]) -> Iterator[MessagePoint]:
    """Yield what was measured of messages between blocks."""
    for operation, seconds in operations:
        if isinstance(operation.exchanged, Messages) and operation.exchanged.sent:
            sent = max(sum(operation.exchanged.sent), sum(operation.exchanged.received))
            yield MessagePoint(sent, plain_point(operation), seconds)


@dataclass(frozen=True, slots=True)
class MessagePoint:
    """What messages of one rank took that it sent at once, along an axis."""

    sent: int
    """Bytes, or received if that was more."""
    joined: tuple[float, float]
    """Bytes that were read and written to join blocks, and those of them that were made anew."""
    seconds: float


def _plain(
    network: nn.Module, x: Tensor, optimizer: torch.optim.Optimizer, clock: Callable[[], float]
) -> Iterator[tuple[Phase, float]]:
    begin = clock()
    loss = squares(network(x))
    forward = clock()
    loss.backward()  # type: ignore[no-untyped-call] # torch leaves it untyped
    backward = clock()
    optimizer.step()
    yield from zip(Phase, (forward - begin, backward - forward, clock() - backward), strict=True)


def kernel_points(steps: Iterable[Timed], device: str) -> tuple[KernelPoints, ...]:
    """Return what was measured of each kind of operation, the same points as one."""
    found = defaultdict[str, dict[tuple[float, ...], list[float]]](lambda: defaultdict(list))
    for step in steps:
        for operation, seconds in step.operations:
            if operation.exchanged is not None or seconds <= 0:
                continue
            found[kind_of(operation, device)][point_of(operation)].append(seconds)
            if operation.name in _COMMON:
                found[ANY][point_of(operation)].append(seconds)
    return tuple(thinned(kind, points) for kind, points in sorted(found.items()))


_MOST, _MOST_OF_CONVOLUTIONS = 200, 800
"""Points of a kind, at most: more cost time whenever a machine's file is read, and tell little."""


def thinned(kind: str, points: Mapping[tuple[float, ...], Sequence[float]]) -> KernelPoints:
    """Return medians of what was measured at each point, at as many points as are kept."""
    most = _MOST_OF_CONVOLUTIONS if "conv" in kind else _MOST
    ordered = sorted(points.items())
    step = max(1, len(ordered) / most)
    kept = [ordered[int(place * step)] for place in range(min(len(ordered), most))]
    return KernelPoints(kind, tuple(point for point, _ in kept), tuple(median(each) for _, each in kept))


def overheads(steps: Sequence[Timed]) -> dict[Phase, float]:
    """Return the seconds from one operation to the next, by the part of the step, beside what they take themselves."""
    found = dict[Phase, float]()
    for phase in Phase:
        rests, counts = 0.0, 0
        for step in steps:
            if not 0 < sum(step.parts.values()) <= _SMALL:
                continue
            own = [seconds for operation, seconds in step.operations if operation.phase is phase]
            rests, counts = rests + step.parts[phase] - sum(own), counts + len(own)
        found[phase] = rests / max(counts, 1)
    return found
