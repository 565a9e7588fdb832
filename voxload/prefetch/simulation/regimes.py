"""Regimes: data sets of four sizes against the room of a machine, in which policies differ in kind.

The four cases of N. Dryden et al., SC'21 (arXiv 2101.08734), section 6; d1 is the memory of a rank, D its memory and
disk, N the number of ranks of a line.
"""

from __future__ import annotations

from dataclasses import dataclass

from voxload.errors import UsageError
from voxload.prefetch.simulation.machine import Machine


@dataclass(frozen=True, slots=True)
class Regime:
    """A size of data set."""

    name: str
    nbytes: int
    """Of one line's blocks of the whole data set."""


def regimes(machine: Machine, groups: int) -> tuple[Regime, ...]:
    """Return data sets in the middle of the first three regimes, and one a quarter larger than all room together.

    A machine without disk has no second regime. Raises UsageError for a single group, which has no third.
    """
    if groups < 2:
        raise UsageError("--groups", found=f"{groups}", expected="2 or more: one has no peers", remedy="see --regimes")
    room = machine.room
    memory, own = room.memory, room.memory + room.disk
    line = groups * own
    found = [
        Regime("S < d1: one rank's memory holds all", memory // 2),
        Regime("d1 < S < D: one rank's memory and disk hold all", (memory + own) // 2),
        Regime("D < S < N D: only all ranks together hold all", (own + line) // 2),
        Regime("N D < S: all ranks together do not hold all", line + line // 4),
    ]
    return tuple(regime for regime in found if room.disk or not regime.name.startswith("d1"))
