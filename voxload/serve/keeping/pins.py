"""Pins: what is to stay near though no job foresees it, by name and until a time; pure.

A pin is a job to the planner that uses nothing and might use all of it any moment. It has a number below zero: sessions
have others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from voxload.errors import UsageError
from voxload.prefetch.line import Ints

MOST = 256
"""Pins at once."""


@dataclass(frozen=True, slots=True)
class Pin:
    """What stays near."""

    name: str
    job: int
    """Its number as a job."""
    units: Ints
    """In the order in which they are of use."""
    ends: float
    """When it ends by itself; infinity for never."""


class Pins:
    """All pins of a service; not safe to use from several threads at once."""

    def __init__(self) -> None:
        self._pins: dict[str, Pin] = {}
        self._given = 0

    def __iter__(self) -> Iterator[Pin]:
        """Iterate over them, in the order in which they came."""
        return iter(tuple(self._pins.values()))

    def add(self, name: str, units: Ints, now: float, seconds: float) -> tuple[Pin, Pin | None]:
        """Pin units for so many seconds, 0 for good; return the pin, and the one that had its name before.

        Raises UsageError where there are too many.
        """
        if name not in self._pins and len(self._pins) >= MOST:
            raise UsageError(
                "pins", found=f"{len(self._pins)}, and one more", expected=f"at most {MOST}", remedy="free one"
            )
        self._given += 1
        before = self._pins.pop(name, None)
        found = self._pins[name] = Pin(name, -self._given, units, now + seconds if seconds else math.inf)
        return found, before

    def end(self, name: str) -> Pin | None:
        """End a pin, and return it; None where there is none of that name."""
        return self._pins.pop(name, None)

    def ended(self, now: float) -> list[Pin]:
        """End those whose time has come, and return them."""
        return [self._pins.pop(one.name) for one in self if one.ends <= now]
