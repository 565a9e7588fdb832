"""simulate: what a policy costs on a machine, predicted in virtual time; pure.

The planners that run in training run here too, driven by a clock instead of threads. ``docs/guides/simulate.md`` tells
what is modelled and what is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from voxload.prefetch.cost import CostModel
from voxload.prefetch.line import EpochOrder, Held, Line
from voxload.prefetch.order.dealing import deal
from voxload.prefetch.order.reordering import reorder
from voxload.prefetch.placement import Placement
from voxload.prefetch.planning.limits import Limits
from voxload.prefetch.planning.planner import Planner
from voxload.prefetch.policies.protocol import Policy
from voxload.prefetch.simulation.bound import lower_bound, optimum_storage_bytes
from voxload.prefetch.simulation.ledger import EpochOutcome, Ledger, Model, Outcome
from voxload.prefetch.simulation.machine import Machine
from voxload.prefetch.simulation.steps import simulate_steps
from voxload.prefetch.simulation.training import Training
from voxload.prefetch.simulation.workload import Workload

__all__ = ["EpochOutcome", "Machine", "Model", "Outcome", "Workload", "optimum_storage_bytes", "run", "simulate"]

UNSTAGED = "none"
"""Name of the policy that fetches nothing ahead."""


def simulate(
    machine: Machine,
    orders: Sequence[EpochOrder],
    line: Line,
    policy: Policy,
    compute: float,
    *,
    lines: int = 1,
    model: Model = Model.EVENTS,
) -> Outcome:
    """Return what training takes.

    Parameters
    ----------
    machine
        What it runs on; the rooms of `line` count, not the machine's.
    orders
        The epochs, one after the other from epoch 0 on.
    line
        Sizes of blocks, and the room of each group's rank.
    policy
        Who keeps what.
    compute
        Seconds of a step, the same on all groups.
    lines
        How many lines share the storage and the nodes: the ranks of a group.
    model
        How time is simulated.

    Raises
    ------
    UsageError
        Orders and line do not fit each other, or no batch fits the machine's staging.
    """
    return run(machine, Workload(line, orders, compute, lines), policy, model=model)


def run(
    machine: Machine, workload: Workload, policy: Policy, *, model: Model, progress: Callable[[int], None] | None = None
) -> Outcome:
    """Do the same for a workload; `progress` gets the number of steps done since its last call."""
    told = progress or (lambda _steps: None)
    # Without staging, a batch is fetched when the step before has ended: into the only slot there is.
    slots = 1 if policy.name == UNSTAGED else machine.slots(workload.batch_bytes)
    if workload.locality == "batch":
        workload, placements = _dealt(policy, workload)
    else:
        workload = _reordered(policy, workload) if workload.locality == "epochs" else workload
        placements = _place(policy, workload)
    if model is Model.STEPS:
        ledger = simulate_steps(machine, workload, placements, slots=slots, progress=told)
    else:
        ledger = Training(machine, workload, _planners(machine, workload, placements), progress=told).run(slots)
    return _outcome(ledger, machine, workload, _Run(policy.name, model))


def _place(policy: Policy, workload: Workload) -> Iterator[Placement]:
    """Yield the placement of each epoch, all later epochs known."""
    state = policy.begin(workload.line, Held.nothing())
    for index, order in enumerate(workload.orders):
        placement, state = policy.place(state, order, workload.orders[index + 1 :])
        yield placement


def _dealt(policy: Policy, workload: Workload) -> tuple[Workload, Iterator[Placement]]:
    """Deal every epoch by what is held when it begins; return what groups get, and its placements.

    As in a loader, to whom later epochs go is not known when one is placed.
    """
    orders, placements = list(workload.orders), []
    state = policy.begin(workload.line, Held.nothing())
    for index, order in enumerate(workload.orders):
        orders[index] = deal(order, state.held)
        placement, state = policy.place(state, orders[index], workload.orders[index + 1 :])
        placements.append(placement)
    return replace(workload, orders=tuple(orders)), iter(placements)


def _reordered(policy: Policy, workload: Workload) -> Workload:
    """Return the same with the orders of its epochs in an order that is chosen before the first of them."""
    found = reorder(workload.orders, workload.line, Held.nothing(), policy)
    orders = tuple(EpochOrder(place, workload.orders[number].samples) for place, number in enumerate(found))
    return replace(workload, orders=orders)


def _planners(machine: Machine, workload: Workload, placements: Iterator[Placement]) -> list[Planner]:
    """Return every group's planner, with the plans of all epochs."""
    local = max(machine.memory.threads, machine.disk.threads if machine.disk else 0)
    limits = Limits(storage=machine.storage.threads, peer=machine.network.threads, local=local)
    files = np.arange(len(workload.line.sizes))
    planners = [
        Planner(workload.line, group, limits=limits, costs=CostModel(), files=files)
        for group in range(workload.line.groups)
    ]
    for placement in placements:
        for group, planner in enumerate(planners):
            planner.extend(placement.of(group))
    return planners


@dataclass(frozen=True, slots=True)
class _Run:
    policy: str
    model: Model


def _outcome(ledger: Ledger, machine: Machine, workload: Workload, what: _Run) -> Outcome:
    return Outcome(
        policy=what.policy,
        model=what.model,
        seconds=ledger.now,
        compute=workload.compute_seconds,
        stall=ledger.stall,
        bytes_by_source=ledger.delivered_bytes(workload.lines),
        stored_bytes=ledger.stored_bytes(workload.lines),
        epochs=ledger.epochs(workload.lines),
        bound=lower_bound(machine, workload),
    )
