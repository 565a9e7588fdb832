"""CalibrationPlan: what is measured, as plain values that travel to ranks; and what they found."""

from __future__ import annotations

from dataclasses import dataclass

from voxload.launch.devices import HOST
from voxload.plan.calibration.measuring import MessagePoint
from voxload.plan.calibration.sharing import StepPoint, SumPoint
from voxload.plan.costs.kernels import KernelPoints


@dataclass(frozen=True, slots=True)
class CalibrationPlan:
    """What ranks measure together."""

    seconds: float
    """For operations; 0 for messages alone."""
    device: str = HOST
    seed: int = 7
    """Of what is drawn to be measured."""


@dataclass(frozen=True, slots=True)
class RankFindings:
    """What one rank measured."""

    kernels: tuple[KernelPoints, ...]
    overheads: tuple[float, ...]
    """Seconds from one operation to the next, of each part of a step in order; nothing where none were measured."""
    messages: tuple[MessagePoint, ...]
    sums: tuple[SumPoint, ...]
    steps: tuple[StepPoint, ...]
    yardstick: tuple[KernelPoints, ...]
    """Convolutions that all ranks measured at once, the same in every job."""
    memory: int
    """Bytes of the device."""
    name: str
    """Of the device."""
