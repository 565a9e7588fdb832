"""recomputed: a traced step in which some modules keep nothing for the backward pass and run again in it; pure.

Activation checkpointing (Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016) of modules, as
``torch.distributed.algorithms._checkpoint.checkpoint_wrapper`` does it: of a module its arguments and its result are
kept, and its forward pass runs again in front of its backward pass.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from voxload.plan.trace.operation import Allocation, Operation, Phase, StepTrace


@dataclass(frozen=True, slots=True)
class Region:
    """One call of a module."""

    path: str
    first: int
    """Number of its first operation in the forward pass."""
    last: int
    """That of its last one."""
    back: int
    """Number of its first operation in the backward pass."""


def regions(trace: StepTrace, paths: Collection[str]) -> list[Region]:
    """Return the calls of modules, in the order in which they run; those without a backward pass are left out.

    A module that is called several times has as many runs of operations in the backward pass, in the other order.
    """
    forward = list(runs(trace, paths, Phase.FORWARD))
    backward = list(runs(trace, paths, Phase.BACKWARD))
    found = []
    for path in dict.fromkeys(path for path, _, _ in forward):
        calls = [run for run in forward if run[0] == path]
        returns = [run for run in backward if run[0] == path][::-1]
        if len(calls) == 1 and returns:
            returns = returns[-1:]  # what is in between belongs to no module, such as sums of gradients
        if len(calls) == len(returns):
            pairs = zip(calls, returns, strict=True)
            found += [Region(path, first, last, back) for (_, first, last), (_, back, _) in pairs]
    return sorted(found, key=lambda each: each.first)


def runs(trace: StepTrace, paths: Collection[str], phase: Phase) -> Iterator[tuple[str, int, int]]:
    """Yield path, first and last operation of what modules do at a time in a phase."""
    operations = [(number, each) for number, each in enumerate(trace.operations) if each.phase is phase]
    owners = {path: _owner(path, paths) for path in {each.path for _, each in operations}}
    for owner, group in groupby(operations, key=lambda each: owners[each[1].path]):
        numbers = [number for number, _ in group]
        if owner:
            yield owner, numbers[0], numbers[-1]


def _owner(path: str, paths: Collection[str]) -> str:
    return next((each for each in paths if path == each or path.startswith(f"{each}.")), "")


def recomputed(trace: StepTrace, paths: Collection[str]) -> StepTrace:
    """Return a step in which the modules of these paths, none of which lies in another, run again in the backward pass.

    What a module makes last is taken to be its result. All of it is taken to run again, also what nothing needs.
    """
    given = sorted(regions(trace, paths), key=lambda each: each.back)
    operations, moved = list[Operation](), list[int]()
    again = dict[int, int]()  # by the number of a forward operation: that of its second run
    for number, each in enumerate(trace.operations):
        for region in (one for one in given if one.back == number):
            for place in range(region.first, region.last + 1):
                again[place] = len(operations)
                operations.append(replace(trace.operations[place], phase=Phase.BACKWARD))
        moved.append(len(operations))
        operations.append(each)
    moved.append(len(operations))
    inside: dict[int, Region] = {place: each for each in given for place in range(each.first, each.last + 1)}
    results = dict[int, int]()  # by the first operation of a region: which of its operations made what it gives
    for one in trace.allocations:
        if one.made in inside and one.freed > inside[one.made].last:
            first = inside[one.made].first
            results[first] = max(results.get(first, -1), one.made)
    allocations = list[Allocation]()
    for one in trace.allocations:
        own = replace(one, made=moved[one.made], freed=moved[one.freed], used=moved[one.used])
        if one.made not in inside:
            allocations.append(own)
            continue
        call, second = inside[one.made], again[one.made]
        if one.freed <= call.last:
            allocations += [own, replace(own, made=second, freed=max(second, again[one.used]))]
            continue
        # Its own backward pass takes what was made again; what others need of the result is gone by then.
        is_result = one.made == results[call.first]
        allocations.append(replace(own, freed=min(own.freed, again[call.first]) if is_result else own.used))
        allocations.append(replace(own, made=second, freed=max(second, own.freed)))
    gradients = tuple(replace(each, ready=moved[each.ready - 1] + 1) for each in trace.gradients)
    ordered = tuple(sorted(allocations, key=lambda each: each.made))
    return StepTrace(tuple(operations), ordered, gradients, trace.weights, trace.state)
