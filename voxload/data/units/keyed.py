"""KeyedUnits: the keys under which units are kept, and what may be kept under them.

Rules of this file:

1. A key names the generation of what it stands for, so that data that were written anew have other keys.
2. What was read is kept only where it is sure to be of that generation: taken before the read, long enough after the
   last change for the next one to show, and found again after it.
3. A unit's keys stay what they were when they were first asked for, unless nothing could be kept under them yet, or
   somebody wants them forgotten.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from voxload.cache.protocol import BlockKey
from voxload.data.units.generations import BlockGenerations
from voxload.data.units.unit import Generations, StoredUnits
from voxload.errors import StorageError
from voxload.readers.protocol import Location, ReadCost, Volume

_PAUSES = (0.05, 0.5)
"""Seconds before a read that the storage refused is tried again: a server that fails over takes about as long."""


@dataclass(frozen=True, slots=True)
class UnitRead:
    """What came of reading a unit from the storage."""

    cost: ReadCost
    """What it took."""
    is_sure: bool
    """Whether it is what its keys say: else it was written to meanwhile, and nobody keeps it."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What was learnt of a unit."""

    keys: tuple[BlockKey, ...]
    generations: Generations | None
    """What its blocks were stored as when the keys were made; None where the storage did not say."""

    @property
    def is_settled(self) -> bool:
        """Whether blocks may be kept under the keys."""
        return self.generations is not None and all(one is None or one.is_settled for one in self.generations)

    @property
    def lasts(self) -> bool:
        """Whether the next job can be sure of the keys."""
        return self.generations is not None and None not in self.generations


class KeyedUnits:
    """Units with their keys; safe to use from many threads at once.

    Parameters
    ----------
    units
        As they are stored.
    outlives
        Whether they may be kept beyond the job.
    alike
        Whether they are of one kind, so that what the first one shows of how they are stored holds for all.
    """

    def __init__(self, units: StoredUnits, *, outlives: bool, alike: bool = True) -> None:
        self._units = units
        self._stored = BlockGenerations(units, outlives=outlives, alike=alike)
        self._lock = threading.Lock()
        self._known: dict[int, _Known] = {}
        self._has_told = False

    def keys(self, number: int) -> tuple[BlockKey, ...]:
        """Return the key of each field's block; what is stored is looked at once, and read by nobody."""
        return self._of(number).keys

    def is_lasting(self, number: int) -> bool:
        """Tell whether the next job can be sure of a unit's keys."""
        return self._of(number).lasts

    def lasts(self, number: int) -> bool:
        """Tell whether the next job can be sure of the keys; where not, this says so, once."""
        is_sure = self.is_lasting(number)
        if not is_sure:
            with self._lock:
                is_first, self._has_told = not self._has_told, True
            if is_first:
                place = self._units.unit(number).locations[0]
                warnings.warn(
                    f"{place}: its blocks are not kept on disk, for the next job could not tell "
                    "them from what may be written there until then; behind a URL that takes strong entity tags, "
                    "of at most 64 objects a block",
                    RuntimeWarning,
                    stacklevel=2,
                )
        return is_sure

    def read(self, number: int, out: Sequence[Volume]) -> UnitRead:
        """Fill one array for each field from the storage; tried again, twice, where the storage refuses.

        Raises DataError when the blocks are not as expected, and what the readers raise.
        """
        known = self._of(number)
        if not known.is_settled:
            known = self._renewed(number, known)
        cost = self.patiently(number, out)
        is_sure = known.is_settled and _names(self._stored.now(number)) == _names(known.generations)
        return UnitRead(cost, is_sure)

    def forget(self, number: int) -> None:
        """Let a unit be looked at anew when its keys are asked for next."""
        with self._lock:
            self._known.pop(number, None)

    def adopt(self, other: KeyedUnits) -> list[int]:
        """Take over what others with fewer units have learnt of those that both have; return their numbers."""
        with other._lock:
            known = dict(other._known)
        same = {number: one for number, one in known.items() if self._units.unit(number) == other._units.unit(number)}
        with self._lock:
            self._known = {**same, **self._known}
        return list(same)

    def patiently(self, number: int, out: Sequence[Volume]) -> ReadCost:
        """Fill one array for each field, as `read` does, whatever its keys are."""
        for pause in _PAUSES:
            try:
                return self._units.read_into(number, out)
            except StorageError as error:
                if isinstance(error.__cause__, PermissionError):  # rights do not come back by waiting
                    raise
                time.sleep(pause)
        return self._units.read_into(number, out)

    def _of(self, number: int) -> _Known:
        with self._lock:
            known = self._known.get(number)
        if known is None:
            known = self._looked(number)
            with self._lock:
                known = self._known.setdefault(number, known)
        return known

    def _renewed(self, number: int, known: _Known) -> _Known:
        """Look again at what had been written just before it was looked at first."""
        fresh = self._looked(number)
        with self._lock:
            found = self._known.get(number)
            if found is None or found.generations is known.generations:
                found = self._known[number] = fresh
            return found

    def _looked(self, number: int) -> _Known:
        unit, generations = self._units.unit(number), self._stored.first(number)
        names = _names(generations) or ("",) * len(unit.fields)
        return _Known(
            tuple(
                BlockKey(f"{_identity(place)} {unit.missing}\n{name}", unit.sample, field, unit.box, unit.boundary)
                for field, place, name in zip(unit.fields, unit.locations, names, strict=True)
            ),
            generations,
        )


def _names(generations: Generations | None) -> tuple[str, ...] | None:
    return None if generations is None else tuple("" if one is None else one.name for one in generations)


def _identity(location: Location) -> str:
    """Return what tells a stored volume from all others, whatever is stored there."""
    parts = (
        location.path,
        location.dataset,
        location.axes,
        location.shape,
        location.dtype,
        location.window,
    )
    more = [repr(location.lead)] if location.lead is not None else []
    return "\n".join((*map(str, parts), *more, *map(_identity, location.also)))
