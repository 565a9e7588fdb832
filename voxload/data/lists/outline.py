"""Outline: what a data set says of itself, as far as nothing has to be opened for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from voxload.data.lists.samples import Sample
from voxload.display.description import Description
from voxload.display.grid_picture import Cuts, counted, grid_picture
from voxload.display.table import Listing, cut, extents, joined, several
from voxload.errors import VoxloadError
from voxload.geometry import Box
from voxload.grid import ProcessGrid
from voxload.readers.axes import AxisOrder
from voxload.readers.handles import Handles
from voxload.readers.protocol import Location
from voxload.units import format_bytes

_LATER = "known once a sample is read"


@dataclass(frozen=True, slots=True)
class Form:
    """Extents and type of a volume."""

    shape: tuple[int, int, int, int]
    """(C, D, H, W), where C counts the channels of all time steps."""
    dtype: str
    """numpy's name of the type; empty where it is not known."""

    @classmethod
    def of(cls, location: Location, handles: Handles) -> Form | None:
        """Return the form of a volume that is open, or whose list says it; None where it would have to be opened."""
        known = handles.known(location)
        if known is not None:
            return cls(known.shape, known.native_dtype.name)
        first = _listed(location)
        others = [_listed(one) for one in location.also]
        if first is None or any(one is None for one in others):
            return None
        channels = first.shape[0] + sum(one.shape[0] for one in others if one is not None)
        return cls((channels, *first.shape[1:]), first.dtype)

    @property
    def spatial(self) -> tuple[int, int, int]:
        """Extents (D, H, W)."""
        return self.shape[1:]

    def nbytes(self, box: Box) -> int | None:
        """Return the bytes of a box with all channels; None where the type is not known."""
        return self.shape[0] * box.size * np.dtype(self.dtype).itemsize if self.dtype else None

    def text(self) -> str:
        """Return it for people."""
        return f"{extents(self.shape)} {self.dtype}".strip()


def _listed(location: Location) -> Form | None:
    """Return what a catalogue says of a volume."""
    if location.shape is None or location.axes is None or location.lead is not None or location.window is not None:
        return None
    try:
        shape = AxisOrder(location.axes).to_volume(location.shape, 1)
        return Form(shape, np.dtype(location.dtype).name if location.dtype else "")
    except (VoxloadError, ValueError, TypeError, KeyError):  # reading it will say what is wrong
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """What is known of a data set."""

    ids: Sequence[str]
    """Ids of the samples."""
    fields: tuple[str, ...]
    first: Sample
    """The first sample."""
    forms: tuple[Form | None, ...]
    """Of its fields; None where nothing is known without opening a file."""
    spatial: tuple[int, int, int]
    """Blocks along (d, h, w)."""
    grid: ProcessGrid | None
    """The ranks; None where they are not looked up yet."""
    cuts: Cuts | None
    """How the first sample is cut into blocks; None where its extents or the ranks are not known, or do not fit."""
    boxes: tuple[Box, ...]
    """This rank's box of each field of it, with halo; empty where they are not known."""
    targets: tuple[str, ...]
    columns: tuple[str, ...]
    options: Mapping[str, str]
    """Whatever else was asked for, such as a halo, by name."""

    def description(self, name: str) -> Description:
        """Return what is said under the name of a class."""
        facts = {
            "samples": f"{len(self.ids):,}: {self._some()}",
            "targets": joined(self.targets),
            "columns": joined(self.columns),
            **(self._unknown_ranks() if self.grid is None else self.grid.facts()),
            **self._block(),
            **self.options,
        }
        coords = None if self.grid is None else self.grid.coords
        picture = grid_picture(counted(self.spatial, coords) if self.cuts is None else self.cuts)
        return Description(name, self._parts(), facts, (self._listing(),), picture)

    def _some(self) -> str:
        """Return the first and the last id; others of many are not looked at."""
        return cut(self.ids[0], 40) if len(self.ids) == 1 else f"{cut(self.ids[0], 40)} to {cut(self.ids[-1], 40)}"

    def _parts(self) -> tuple[str, ...]:
        """Return what the plain repr has."""
        some = several(len(self.ids), "sample")
        forms = (
            f"{cut(name, 40)}: {form.text() if form is not None else 'not read yet'}"
            for name, form in zip(self.fields, self.forms, strict=True)
        )
        targets = (several(len(self.targets), "target"),) if self.targets else ()
        blocks = f"{extents(self.spatial)} {'block' if prod(self.spatial) == 1 else 'blocks'}"
        ranks = "" if self.grid is None else f", rank {self.grid.rank} of {self.grid.world_size}"
        options = (f"{name} {text}" for name, text in self.options.items() if text)
        return (some, *forms, *targets, f"{blocks}{ranks}", *options)

    def _unknown_ranks(self) -> dict[str, str]:
        return {"blocks of a sample (d, h, w)": extents(self.spatial), "ranks": "looked up when first needed"}

    def _block(self) -> dict[str, str]:
        """Return this rank's block of the first sample, and the bytes of an item."""
        if not self.boxes:
            is_missed = self.grid is not None and self.forms[0] is not None
            return {"block of this rank": "none: the first sample does not fit the grid" if is_missed else ""}
        sizes = [None if form is None else form.nbytes(box) for form, box in zip(self.forms, self.boxes, strict=True)]
        whole = [None if form is None else form.nbytes(Box.whole(form.spatial)) for form in self.forms]
        known, all_of = [size for size in sizes if size is not None], [size for size in whole if size is not None]
        return {
            "block of this rank, with halo": str(self.boxes[0]),
            "its bytes, in the stored type": _bytes(known, sizes),
            "bytes of a whole volume, in that type": _bytes(all_of, whole),
        }

    def _listing(self) -> Listing:
        """Return a row for each field."""
        rows = tuple(
            (name, str(location), extents(form.shape) if form else _LATER, form.dtype if form else "")
            for name, location, form in zip(self.fields, self.first.locations, self.forms, strict=True)
        )
        return Listing("Fields, as in the first sample", ("field", "stored in", "shape (C, D, H, W)", "dtype"), rows)


def _bytes(known: Sequence[int], sizes: Sequence[int | None]) -> str:
    """Return a sum of bytes, where all of them are known."""
    return format_bytes(sum(known)) if len(known) == len(sizes) else ""
