"""exact: what a setup takes as the engine runs it, of the rank that others wait for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from voxload.engine import SplitPlan
from voxload.grid import ProcessGrid
from voxload.plan.forecast.forecast import Forecast, Oracle
from voxload.plan.forecast.setups import Setup
from voxload.plan.forecast.training import OPTIMIZERS
from voxload.plan.trace.operation import StepTrace
from voxload.plan.trace.step import trace_step


def exact(
    oracle: Oracle, setup: Setup, layers: Mapping[str, str] | None = None, recompute: Collection[str] = ()
) -> tuple[Forecast, StepTrace]:
    """Return what a setup takes, and the step of the rank that takes longest.

    Two ranks are traced: one in the middle of a group, which has neighbours on all sides, and the first one, which
    takes part in layers that go to fewer ranks. Memory is that of the one with more.

    Parameters
    ----------
    oracle
        Says what is trained, and how fast operations and messages are.
    setup
        Who has what, without stages.
    layers
        What layers use the axes of the grid for; those left out cut space.
    recompute
        Paths of modules that run again in the backward pass.

    Raises
    ------
    UsageError
        When the network cannot be split so, as `voxload.engine.shard` would.
    """
    training = oracle.training
    split = SplitPlan.of(layers) if layers else None
    first = ProcessGrid(setup.spatial, setup.ranks)
    found: list[tuple[Forecast, StepTrace]] = []
    for grid in dict.fromkeys((setup.grid, first)):
        trace = trace_step(
            training.network(),  # anew: wrappers of what is checkpointed stay
            grid,
            training.shape,
            channels=training.sample[0],
            batch=setup.samples,
            optimizer=OPTIMIZERS[training.optimizer],
            plan=split,
            recompute=recompute,
            autocast=training.autocast,
        )
        found.append((oracle.forecast(setup, trace), trace))
        if setup.spatial == (1, 1, 1):
            break
    slowest, trace = max(found, key=lambda each: each[0].time.total)
    memory = max((each.memory for each, _ in found), key=lambda each: each.use.total)
    return replace(slowest, memory=memory, layers=dict(layers or {}), recompute=tuple(recompute)), trace
