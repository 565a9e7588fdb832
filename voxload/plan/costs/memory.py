"""Memory: the most that a step has at once on one rank, and what that is; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate

from voxload.errors import UsageError
from voxload.plan.costs.workspace import workspace_of
from voxload.plan.trace.operation import Allocation, Phase, StepTrace
from voxload.units import format_bytes


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes of one rank when it has most, in any step but the first; its parts add up to the whole."""

    weights: int
    """Parameters and buffers."""
    state: int
    """Of the optimiser."""
    gradients: int
    """Of parameters, as far as they are there by then."""
    buckets: int
    """DDP's copies of all gradients."""
    kept: int
    """What the forward pass made and the backward pass needs still."""
    working: int
    """What the operation at work takes and makes beside that."""
    staging: int
    """Blocks that wait to be used."""

    @property
    def total(self) -> int:
        """All of it."""
        return sum(getattr(self, each.name) for each in fields(self))


@dataclass(frozen=True, slots=True)
class MemoryPeak:
    """When a rank has most memory, and what."""

    use: MemoryUse
    operation: str
    """Name of the operation at work."""
    path: str
    """Of the layer at work."""
    held: tuple[Allocation, ...]
    """What the step itself has made and holds then, the largest first."""

    def require(self, limit: int) -> None:
        """Raise UsageError, with the largest tensor and its layer, where that is more than `limit` bytes."""
        if self.use.total <= limit:
            return
        parts = [(getattr(self.use, each.name), each.name) for each in fields(self.use)]
        told = ", ".join(f"{name} {format_bytes(nbytes)}" for nbytes, name in sorted(parts, reverse=True) if nbytes)
        where = ""
        if self.held:
            most = self.held[0]
            where = f"; the largest tensor is {format_bytes(most.nbytes)} of {most.name} {most.shape} in {most.path!r}"
        raise UsageError(
            f"memory of a rank while {self.operation} of {self.path!r} runs",
            found=f"{format_bytes(self.use.total)}: {told}{where}",
            expected=f"at most {format_bytes(limit)}",
            remedy="split each sample over more ranks, take fewer samples a group, or checkpoint activations",
        )


def memory_peak(trace: StepTrace, *, replicas: int = 1, staging: int = 0, device: str = "") -> MemoryPeak:
    """Return the most memory that a rank has at once in a step.

    Parameters
    ----------
    trace
        The step of the rank.
    replicas
        Ranks over which DDP averages gradients; with one there are no buckets.
    staging
        Bytes of blocks that wait to be used, and of the one that is used.
    device
        Type of the device, of whose kernels' own memory something may be known.
    """
    count = len(trace.operations)
    phases = [each.phase for each in trace.operations]
    # What a first step makes for the optimiser is there from the second one on.
    state = [each for each in trace.allocations if each.freed >= count and _phase(phases, each) is Phase.UPDATE]
    known = set(map(id, state))
    others = [each for each in trace.allocations if id(each) not in known]
    changes = [0] * (count + 2)
    for each in others:
        changes[each.made] += each.nbytes
        changes[min(each.freed, count) + 1] -= each.nbytes
    own = [workspace_of(each, device) if device else 0 for each in trace.operations]
    sizes = [size + more for size, more in zip(accumulate(changes), [*own, 0, 0], strict=True)]
    at = max(range(count), key=sizes.__getitem__, default=0)
    held = sorted((each for each in others if each.made <= at <= each.freed), key=lambda each: -each.nbytes)
    gradients = _sum(each for each in held if each.freed >= count and _phase(phases, each) is Phase.BACKWARD)
    is_backward = bool(phases) and phases[at] is Phase.BACKWARD
    kept = _sum(each for each in held if is_backward and _phase(phases, each) is Phase.FORWARD)
    use = MemoryUse(
        weights=trace.weights,
        state=trace.state,
        gradients=gradients,
        buckets=sum(each.nbytes for each in trace.gradients) if replicas > 1 else 0,
        kept=kept,
        working=_sum(held) - gradients - kept + (own[at] if own else 0),
        staging=staging,
    )
    work = trace.operations[at] if count else None
    return MemoryPeak(use, "" if work is None else work.name, "" if work is None else work.path, tuple(held))


def _phase(phases: Sequence[Phase], allocation: Allocation) -> Phase | None:
    return phases[allocation.made] if allocation.made < len(phases) else None


def _sum(allocations: Iterable[Allocation]) -> int:
    return sum(each.nbytes for each in allocations)
