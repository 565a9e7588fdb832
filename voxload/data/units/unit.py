"""Unit: a part of stored volumes that is kept by itself, of all fields of a sample or of some."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from voxload.data.layout import FieldLayout
from voxload.geometry import Boundary, Box
from voxload.readers.generation import Generation
from voxload.readers.protocol import Location, Missing, ReadCost, Volume

Generations = tuple[Generation | None, ...]
"""Of each field; None of a field that its storage tells nothing of by which it could be known again."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One thing that is kept."""

    sample: str
    """Id of the sample that it is of."""
    fields: tuple[str, ...]
    """Names of the fields that it has."""
    locations: tuple[Location, ...]
    """Their volumes."""
    box: Box
    """Its voxels; they may lie outside the volume."""
    layout: tuple[FieldLayout, ...]
    """Shape and type of each field's array."""
    boundary: Boundary
    """What lies outside the volume."""
    missing: Missing
    """What is done about voxels that were never written."""

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        return sum(field.nbytes for field in self.layout)


class StoredUnits(Protocol):
    """Units as they are stored, by number; safe to use from many threads at once."""

    def unit(self, number: int) -> Unit:
        """Return one of them; costs no I/O."""
        ...

    def read_into(self, number: int, out: Sequence[Volume]) -> ReadCost:
        """Fill an array for each of a unit's fields from the storage; raises what the readers raise."""
        ...

    def generations(self, number: int) -> Generations:
        """Return the generation of each field's part; see `VolumeDataset.generations`."""
        ...
