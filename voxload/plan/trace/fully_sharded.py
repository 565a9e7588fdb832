"""fully_sharded: a step of a rank that keeps its share of all weights alone, as FSDP2 does; pure.

``torch.distributed.fsdp.fully_shard`` around the whole network (Zhao et al., PyTorch FSDP, VLDB 2023): weights are
gathered in front of the forward pass and stay until the backward pass is over, when gradients are summed, each rank's
share for itself. Both move half of what a sum over all ranks does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from voxload.engine.observe import Total
from voxload.plan.trace.operation import Allocation, Operation, Phase, StepTrace

GATHER, SCATTER = "fsdp.all_gather", "fsdp.reduce_scatter"
"""Names of what is put in."""


def fully_sharded(trace: StepTrace, ranks: int) -> StepTrace:
    """Return the step of one of so many ranks, of a step whose weights are whole."""
    whole = sum(each.nbytes for each in trace.gradients)
    if ranks < 2 or not whole:
        return trace
    share = -(-whole // ranks)
    turn = next((place for place, each in enumerate(trace.operations) if each.phase is Phase.UPDATE), None)
    end = len(trace.operations) if turn is None else turn
    operations = (
        exchange(GATHER, Phase.FORWARD, whole),
        *trace.operations[:end],
        exchange(SCATTER, Phase.BACKWARD, whole),
        *(divided(each, ranks) for each in trace.operations[end:]),
    )
    allocations = (
        Allocation(whole, 0, 0, "", GATHER, (whole,)),
        Allocation(whole, 0, end + 1, "", GATHER, (whole,)),
        *_moved(trace, end, ranks),
        Allocation(whole, end + 1, end + 1, "", SCATTER, (whole,)),
        Allocation(share, end + 1, len(operations), "", SCATTER, (share,)),
    )
    ordered = tuple(sorted(allocations, key=lambda each: each.made))
    weights = trace.weights - whole + share
    return StepTrace(operations, ordered, (), weights, -(-trace.state // ranks))


def _moved(trace: StepTrace, end: int, ranks: int) -> Iterator[Allocation]:
    """Yield what the step makes, behind one operation more, and two from the update on."""
    last = len(trace.operations)
    for each in trace.allocations:
        made = each.made + 1 + (each.made >= end)
        freed = each.freed + 1 + (each.freed >= end)
        used = each.used + 1 + (each.used >= end)
        if each.made >= end:
            yield replace(each, made=made, freed=freed, used=used, nbytes=-(-each.nbytes // ranks))
        elif each.freed >= last:  # a gradient: gone once it is summed
            yield replace(each, made=made, freed=end + 1, used=used)
        else:
            yield replace(each, made=made, freed=freed, used=used)


def exchange(name: str, phase: Phase, nbytes: int) -> Operation:
    """Return what moves half of what a sum of so many bytes over all ranks does."""
    return Operation(name, phase, "", (), (), "float32", (), 0, 2 * nbytes, Total(nbytes // 2, is_world=True))


def divided(operation: Operation, ranks: int) -> Operation:
    """Return an operation of the update on a rank's share of each weight: its rows."""

    def local(shape: tuple[int, ...]) -> tuple[int, ...]:
        return (-(-shape[0] // ranks), *shape[1:]) if shape else shape

    shapes, results = (tuple(map(local, each)) for each in (operation.shapes, operation.results))
    before = sum(map(prod, (*operation.shapes, *operation.results)))
    after = sum(map(prod, (*shapes, *results)))
    moved = operation.moved * after // max(before, 1)
    return replace(operation, shapes=shapes, results=results, moved=moved)
