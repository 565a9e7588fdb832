"""Layers: what each of them takes of a step, so that one sees where the time goes; pure."""

from __future__ import annotations

from collections.abc import Sequence
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
    ways = {axis: fabric.along(axis, grid) for axis, count in enumerate(grid.spatial) if count > 1}
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
        if isinstance(each.exchanged, Messages):
            layer.halos += ways[each.exchanged.axis].exchange(each.exchanged) if each.exchanged.axis in ways else 0.0
            layer.sent += sum(each.exchanged.sent)
        elif each.exchanged is not None:
            ranks: Sequence[int] = range(grid.world_size) if each.exchanged.is_world else grid.group_ranks
            layer.sums += fabric.all_reduce(each.exchanged.nbytes, ranks)
    last = max((place for place, each in enumerate(trace.operations) if each.phase is Phase.FORWARD), default=-1)
    for allocation in trace.allocations:
        if allocation.made <= last < allocation.freed and allocation.path in found:
            found[allocation.path].kept += allocation.nbytes
    return list(found.values())
