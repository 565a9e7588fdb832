"""Share: which part of a conversion a task does; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from voxload.errors import UsageError

_TASK, _COUNT, _FIRST = "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN"
_STEP = "SLURM_ARRAY_TASK_STEP"


@dataclass(frozen=True, slots=True)
class Share:
    """One of several tasks that convert into one folder; task i takes every so many-th volume."""

    task: int
    """Number of this task, from 0."""
    tasks: int
    """How many there are."""

    def __post_init__(self) -> None:
        if self.tasks < 1 or not 0 <= self.task < self.tasks:
            raise UsageError(
                "--task", found=f"{self.task} of {self.tasks}", expected="a number from 0 to one less than --tasks"
            )

    @property
    def name(self) -> str:
        """Name in files, such as ``003-of-032``."""
        width = max(3, len(str(self.tasks)))
        return f"{self.task:0{width}}-of-{self.tasks:0{width}}"

    def takes(self, number: int) -> bool:
        """Tell whether the volume of this number is this task's."""
        return number % self.tasks == self.task

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Share | None:
        """Return the share of a Slurm array task, or None outside of one.

        Raises UsageError when the variables make no sense. Source: Slurm's sbatch(1), section output environment
        variables. An array's indices may begin anywhere and leave gaps of a step.
        """
        if _TASK not in environment:
            return None
        try:
            number, first = int(environment[_TASK]), int(environment.get(_FIRST, "0"))
            step, count = int(environment.get(_STEP, "1")), int(environment[_COUNT])
            return cls((number - first) // step, count)
        except (KeyError, ValueError, ZeroDivisionError) as error:
            raise UsageError(
                "Slurm's environment",
                found=", ".join(f"{name}={environment.get(name)}" for name in (_TASK, _FIRST, _STEP, _COUNT)),
                expected="the numbers of an array task",
                remedy="say --task and --tasks",
            ) from error
