"""InferenceResult: what a run of predictions found, as plain values that travel from its ranks as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any


@dataclass(frozen=True, slots=True)
class InferenceResult:
    """One run, either of a regression or of a segmentation."""

    samples: int
    """Samples predicted."""
    spatial: tuple[int, int, int]
    """Blocks along (d, h, w)."""
    groups: int
    """Sample groups."""
    files: tuple[str, ...]
    """What was written into the output folder, by name."""
    targets: tuple[str, ...] = ()
    """Names of the targets; empty for a segmentation."""
    mae: tuple[float | None, ...] = ()
    """Mean absolute error, one per target, over the samples whose truth is known; None where there are none."""
    known: tuple[int, ...] = ()
    """Number of those samples, one per target."""
    classes: tuple[int, ...] = ()
    """The foreground classes; empty for a regression."""
    dice: tuple[float, ...] = ()
    """Mean Dice of the labelled samples, one per foreground class; empty where there are none."""
    labelled: int = 0
    """Number of samples with labels."""
    seconds: float = 0.0
    """Duration on the first rank, from reading the checkpoint to the last file."""

    @property
    def mean_dice(self) -> float | None:
        """Mean of `dice` over the foreground classes, each of one weight; None where there are no labels."""
        return fmean(self.dice) if self.dice else None

    def to_dict(self) -> dict[str, Any]:
        """Return the result as values that are fit for JSON, derived figures included."""
        return dataclasses.asdict(self) | {"mean_dice": self.mean_dice}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> InferenceResult:
        """Return the result that `to_dict` gave, whether it has travelled as JSON or not."""
        tupled: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
        }
        tupled.pop("mean_dice")
        return cls(**tupled)
