"""Figures of a run: DLIO's own, and those of what voxload's plug-in measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from bench.underdlio.launch import summary
from voxload.benchmark.dlio.journal import read_records
from voxload.benchmark.measure.figures import utilisation

AGREEMENT = 2.0
"""Points of AU that both may differ by."""
WARMUP = 1
"""First steps of an epoch that DLIO leaves out."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Accelerator utilisation of a run, in percent."""

    dlio: float
    """As DLIO has it."""
    ours: float | None
    """As `voxload.benchmark.measure.figures` makes it out of what the plug-in measured; None for DLIO's own loader."""
    samples_per_second: float
    """As DLIO has it."""
    compute: float | None
    """Mean seconds of the emulated computing of a step."""

    @property
    def difference(self) -> float | None:
        """Points by which ours lies above DLIO's."""
        return None if self.ours is None else self.ours - self.dlio

    @property
    def agrees(self) -> bool:
        """Whether both are the same within `AGREEMENT`; there is nothing to disagree with for DLIO's own loader."""
        return self.difference is None or abs(self.difference) <= AGREEMENT


def figures(output: Path, *, is_ours: bool) -> Figures:
    """Return the figures of a run in its output folder; raises NotFoundError when the plug-in has written nothing."""
    metric = summary(output)
    ours = compute = None
    if is_ours:
        records = read_records(output)
        found = utilisation(records, warmup=WARMUP)
        ours = None if found is None else 100 * found
        compute = fmean(each for record in records for epoch in record.epochs for each in epoch.steps.compute)
    return Figures(
        dlio=float(metric["train_au_mean_percentage"]),
        ours=ours,
        samples_per_second=float(metric["train_throughput_mean_samples_per_second"]),
        compute=compute,
    )
