"""Timeline: when the operations of a step run, and which messages somebody waits for; pure.

Halos are waited for, as the engine waits for them where it pads blocks. Gradients travel in DDP's buckets while the
backward pass goes on (Li et al., PyTorch Distributed, VLDB 2020): a bucket begins when all in it are there and the one
before it has ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from voxload.grid import ProcessGrid
from voxload.plan.costs.speeds import Fabric, Kernels
from voxload.plan.trace.operation import Gradient, Phase, StepTrace

FIRST_BUCKET, BUCKET = 2**20, 25 * 2**20
"""Bytes of gradients in DDP's first bucket, and in all others."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of a training step of one rank; its parts add up to the whole."""

    forward: float
    """Computing in the forward pass."""
    backward: float
    """Computing in the backward pass."""
    update: float
    """The optimiser."""
    halos: float
    """Messages between blocks, in both passes."""
    sums: float
    """Sums over ranks in both passes, such as those of statistics."""
    gradients: float
    """What the step waits for gradients behind the backward pass."""
    hidden: float
    """What gradients travel while the backward pass goes on; no part of the whole."""
    until_backward: float
    """From the beginning of the step until the backward pass begins, messages included; no part of the whole either.
    With stages, until the last pass has ended."""
    waiting: float = 0.0
    """What a stage of a pipeline waits for others, messages from and to them included."""

    @property
    def total(self) -> float:
        """Of the whole step."""
        return self.forward + self.backward + self.update + self.halos + self.sums + self.gradients + self.waiting


def step_time(
    trace: StepTrace, kernels: Kernels, fabric: Fabric, grid: ProcessGrid, *, replicas: Sequence[int] | None = None
) -> StepTime:
    """Return how long a traced step takes on the rank from which `grid` is seen.

    Parameters
    ----------
    trace
        The step, of that rank.
    kernels, fabric
        Speeds of the machine.
    grid
        The grid.
    replicas
        Ranks over which gradients are averaged; by default all of the grid.
    """
    computing = dict.fromkeys(Phase, 0.0)
    halos = sums = 0.0
    clock, ends = 0.0, [0.0]  # by the number of operations that have ended, without the wait for gradients
    among = range(grid.world_size) if replicas is None else replicas
    waits, met = fabric.waits(grid), 0.0
    for each in trace.operations:
        seconds = kernels.seconds(each)
        computing[each.phase] += seconds
        if each.exchanged is not None:
            halo, total = waits.halos(each), waits.sums(each)
            late = fabric.late(max(0.0, clock + seconds - met)) if halo or total else 0.0
            halos += halo + (late if halo else 0.0)
            sums += total + (0.0 if halo else late)
            seconds += halo + total + late
            met = clock + seconds if halo or total else met
        clock += seconds
        ends.append(clock)
    last = max((number for number, each in enumerate(trace.operations, 1) if each.phase is not Phase.UPDATE), default=0)
    turn = max((number for number, each in enumerate(trace.operations, 1) if each.phase is Phase.FORWARD), default=0)
    free = busy = 0.0
    for nbytes, ready in buckets(trace.gradients):
        seconds = fabric.all_reduce(nbytes, among)
        free, busy = max(free, ends[ready]) + seconds, busy + seconds
    hidden = busy - max(0.0, free - ends[last])
    exposed = (
        busy
        - hidden
        + (fabric.gradients + fabric.late(max(0.0, ends[last] - met)) if trace.gradients and len(among) > 1 else 0.0)
    )
    return StepTime(
        computing[Phase.FORWARD],
        computing[Phase.BACKWARD],
        computing[Phase.UPDATE],
        halos,
        sums,
        exposed,
        hidden,
        ends[turn],
    )


def buckets(gradients: Sequence[Gradient]) -> Iterator[tuple[int, int]]:
    """Yield the bytes of DDP's buckets, and the number of operations after which all in it is there.

    A bucket is closed by the gradient with which it has as many bytes as it may have, or more.
    """
    nbytes = ready = 0
    most = FIRST_BUCKET
    for each in gradients:
        nbytes, ready = nbytes + each.nbytes, max(ready, each.ready)
        if nbytes >= most:
            yield nbytes, ready
            nbytes = ready = 0
            most = BUCKET
    if nbytes:
        yield nbytes, ready
