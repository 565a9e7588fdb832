"""Layers: what each of them takes of a step, so that one sees where the time goes; pure."""

from __future__ import annotations

from dataclasses import dataclass

from voxload.engine.observe import Messages
from voxload.grid import ProcessGrid
from voxload.plan.costs.speeds import Fabric, Kernels
from voxload.plan.trace.operation import Phase, StepTrace


@dataclass(slots=True)
class LayerCost:
    """What one layer takes, and its part of the memory that the backward pass needs."""

    path: str
    forward: float = 0.0
    """Seconds of computing."""
    backward: float = 0.0
    halos: float = 0.0
    """Seconds of messages between blocks, in both passes."""
    sums: float = 0.0
    """Seconds of sums over ranks, in both passes."""
    flops: int = 0
    sent: int = 0
    """Bytes of messages."""
    kept: int = 0
    """Bytes that its forward pass makes and its backward pass needs."""

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.forward + self.backward + self.halos + self.sums


def layer_costs(trace: StepTrace, kernels: Kernels, fabric: Fabric, grid: ProcessGrid) -> list[LayerCost]:
    """Return what layers take, in the order in which they run; what belongs to none has an empty path."""
    found = dict[str, LayerCost]()
    waits = fabric.waits(grid)
    for each in trace.operations:
        if each.phase is Phase.UPDATE:
            continue
        layer = found.setdefault(each.path, LayerCost(each.path))
        seconds = kernels.seconds(each)
        if each.phase is Phase.FORWARD:
            layer.forward += seconds
        else:
            layer.backward += seconds
        layer.flops += each.flops
        layer.halos += waits.halos(each)
        layer.sums += waits.sums(each)
        if isinstance(each.exchanged, Messages):
            layer.sent += sum(each.exchanged.sent)
    last = max((place for place, each in enumerate(trace.operations) if each.phase is Phase.FORWARD), default=-1)
    for allocation in trace.allocations:
        if allocation.made <= last < allocation.freed and allocation.path in found:
            found[allocation.path].kept += allocation.nbytes
    return list(found.values())
