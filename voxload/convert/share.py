"""Share: which part of a conversion a task does; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from voxload.errors import UsageError

_TASK, _COUNT = "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT"
_FIRST, _LAST, _STEP = "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_MAX", "SLURM_ARRAY_TASK_STEP"


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

        Raises UsageError when the variables make no sense, or the array's indices do not go up in equal steps: a list
        with gaps, such as ``--array=3,7,8``, does not say which of its tasks this is. An array of one index is the
        whole conversion, so that what a killed task left can be done by ``--array=7`` when the others have ended.
        Source: Slurm's sbatch(1), section output environment variables.
        """
        if _TASK not in environment:
            return None
        try:
            number, count = int(environment[_TASK]), int(environment[_COUNT])
            first, step = int(environment.get(_FIRST, "0")), int(environment.get(_STEP, "1"))
            # A step is said of an array of one index, too, and means nothing there.
            step = 1 if count == 1 else step
            last = int(environment.get(_LAST, str(first + (count - 1) * step)))
            task, rest = divmod(number - first, step)
            if rest or last - first != (count - 1) * step:
                raise ValueError("indices with gaps")  # noqa: TRY301 - as what int raises
            return cls(task, count)
        except (KeyError, ValueError, ZeroDivisionError) as error:
            names = (_TASK, _FIRST, _LAST, _STEP, _COUNT)
            raise UsageError(
                "Slurm's environment",
                found=", ".join(f"{name}={environment.get(name)}" for name in names),
                expected="the numbers of an array task whose indices go up in equal steps",
                remedy="say --task and --tasks",
            ) from error
