"""sharded_by_module: a step of a rank that gathers the weights of one module at a time, as FSDP2 does; pure.

``torch.distributed.fsdp.fully_shard`` around each module that has weights, and then around the network (Zhao et al.,
PyTorch FSDP, VLDB 2023): weights are gathered in front of a module's forward pass and let go of behind it, again in
front of its backward pass, and its gradients are summed behind that, each rank's share for itself. While one module
computes the next one's weights come: two are there at a time. That they come meanwhile is not counted on for the time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from voxload.plan.trace.fully_sharded import GATHER, SCATTER, divided, exchange
from voxload.plan.trace.operation import Allocation, Operation, Phase, StepTrace
from voxload.plan.trace.recompute import runs


@dataclass(frozen=True, slots=True)
class _Run:
    """What a module does at a time."""

    path: str
    first: int
    """Number of its first operation."""
    last: int
    """That of its last one."""
    phase: Phase
    ends: bool = False
    """Whether its gradients are all there behind it."""


def sharded_by_module(trace: StepTrace, ranks: int) -> StepTrace:
    """Return the step of one of so many ranks, of a step whose weights are whole."""
    whole = sum(each.nbytes for each in trace.gradients)
    if ranks < 2 or not whole:
        return trace
    sizes: dict[str, int] = defaultdict(int)
    for gradient in trace.gradients:
        sizes[gradient.name.rpartition(".")[0]] += gradient.nbytes
    given = _given(trace, sorted(sizes, key=len, reverse=True))
    at = {run.first: run for run in given}
    behind = {run.last: run for run in given if run.ends}
    operations, moved = list[Operation](), list[int]()
    gathered, summed = dict[int, int](), dict[str, int]()
    for number, each in enumerate(trace.operations):
        if number in at:
            gathered[number] = len(operations)
            operations.append(exchange(GATHER, at[number].phase, sizes[at[number].path]))
        moved.append(len(operations))
        operations.append(divided(each, ranks) if each.phase is Phase.UPDATE else each)
        if number in behind:
            summed[behind[number].path] = len(operations)
            operations.append(exchange(SCATTER, Phase.BACKWARD, sizes[behind[number].path]))
    moved.append(len(operations))
    allocations = [
        *_moved(trace, moved, summed, ranks),
        *_gathered(given, sizes, gathered, moved),
        *_summed(sizes, summed, ranks, len(operations)),
    ]
    ordered = tuple(sorted(allocations, key=lambda each: each.made))
    shares = sum(-(-nbytes // ranks) for nbytes in sizes.values())
    return StepTrace(tuple(operations), ordered, (), trace.weights - whole + shares, -(-trace.state // ranks))


def _given(trace: StepTrace, paths: list[str]) -> list[_Run]:
    """Return what modules do, in order; the last time that one has a backward pass, its gradients are there."""
    found = [
        _Run(path, first, last, phase)
        for phase in (Phase.FORWARD, Phase.BACKWARD)
        for path, first, last in runs(trace, paths, phase)
    ]
    ends = {each.path: place for place, each in enumerate(found) if each.phase is Phase.BACKWARD}
    return [replace(each, ends=ends.get(each.path) == place) for place, each in enumerate(found)]


def _gathered(
    given: list[_Run], sizes: dict[str, int], gathered: dict[int, int], moved: list[int]
) -> Iterator[Allocation]:
    """Yield the weights of each module, from when those of the one before it are there."""
    before = 0
    for each in given:
        nbytes, made = sizes[each.path], gathered[each.first]
        yield Allocation(nbytes, min(before, made), moved[each.last] + 1, each.path, GATHER, (nbytes,))
        before = made


def _summed(sizes: dict[str, int], summed: dict[str, int], ranks: int, last: int) -> Iterator[Allocation]:
    """Yield the gradients of each module while they are summed, and a rank's share of them from then on."""
    for path, place in summed.items():
        share = -(-sizes[path] // ranks)
        yield Allocation(sizes[path], place, place, path, SCATTER, (sizes[path],))
        yield Allocation(share, place, last, path, SCATTER, (share,))


def _moved(trace: StepTrace, moved: list[int], summed: dict[str, int], ranks: int) -> Iterator[Allocation]:
    """Yield what the step makes, at its new place; whole gradients are gone once they are summed."""
    last = len(trace.operations)
    update = next((place for place, each in enumerate(trace.operations) if each.phase is Phase.UPDATE), last)
    for each in trace.allocations:
        own = replace(each, made=moved[each.made], freed=moved[each.freed], used=moved[each.used])
        if each.made >= update:
            yield replace(own, nbytes=-(-each.nbytes // ranks))
        elif each.freed >= last:
            gone = summed.get(each.path, moved[update])
            yield replace(own, freed=max(own.made, gone + 1))
        else:
            yield own
