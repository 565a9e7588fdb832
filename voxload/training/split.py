"""Split: which samples are held out; pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from voxload.errors import UsageError


@dataclass(frozen=True, slots=True)
class Split:
    """Sample ids to train on and ids to judge by."""

    training: tuple[str, ...]
    """Sorted."""
    validation: tuple[str, ...]
    """Sorted; shares no id with `training`."""


def split_samples(ids: Sequence[str], *, fraction: float, seed: int) -> Split:
    """Hold out `fraction` of the samples, chosen by `seed`; the same on every rank.

    Raises UsageError when either part would be empty.
    """
    count = round(len(ids) * fraction)
    if not 0 < count < len(ids):
        raise UsageError(
            "validation split",
            found=f"{count} of {len(ids)} samples",
            expected="at least one sample to train on and one to hold out",
            remedy="use more samples or another fraction",
        )
    drawn = sorted(ids)
    random.Random(seed).shuffle(drawn)  # noqa: S311 - a split needs no secrecy
    return Split(tuple(sorted(drawn[count:])), tuple(sorted(drawn[:count])))
