"""Accelerator utilisation (AU) as MLPerf Storage defines it; pure.

AU is the time that accelerators computed over the time that the benchmark ran, where the first steps of each epoch are
left out of both, as an accelerator would fill its pipeline then; of several ranks the mean counts (MLPerf Storage's
rules, section "Accelerator utilization"; `StatsCounter` of DLIO computes it so).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from voxload.benchmark.record import Epoch, Record


def epoch_utilisation(epoch: Epoch, *, warmup: int) -> float | None:
    """Return the AU of one rank's epoch, 0 to 1; None where no step is left after `warmup` of them.

    Of a step that is left out, loading and computing do not count; waiting for other ranks after it does.
    """
    steps = epoch.steps
    if len(steps.compute) <= warmup:
        return None
    spent = epoch.wall - sum(steps.stall[:warmup]) - sum(steps.compute[:warmup])
    return sum(steps.compute[warmup:]) / spent if spent > 0 else None


def utilisation(records: Sequence[Record], *, warmup: int) -> float | None:
    """Return the mean AU over all ranks and epochs; None where no epoch has a step that counts."""
    found = [epoch_utilisation(epoch, warmup=warmup) for record in records for epoch in record.epochs]
    counted = [value for value in found if value is not None]
    return fmean(counted) if counted else None
