"""Doors: the ways by which a damaged volume gets into a program: opened by a reader, or converted."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tests.support.fuzzing.targets import EXTENT, VALUES, Target, is_right
from voxload.catalog.table import Catalog
from voxload.convert import ConvertOptions, Hints, convert
from voxload.geometry import Box
from voxload.readers import Location, open_reader

Found = npt.NDArray[np.generic]
Door = Callable[[Target, Path], Found]
"""Takes a target and the folder that holds it; returns the volume, (C, D, H, W)."""
_SMALL = 2**22
"""Volumes up to this size are read whole. A damaged extent may be huge and still honest: of those a corner is read."""
_INNER = Box((3, 8, 1), (11, 9, 15))
"""Parts of chunks, which readers may fetch and decode in other ways than whole ones."""
_MEMORY = 2**29
"""Bytes that a conversion may take, the interpreter with all libraries of this process among them."""


def read(target: Target, folder: Path) -> Found:
    """Read a volume, or the corner of one that claims to be large."""
    return _read(Location(str(folder / target.path), target.dataset))


def read_converted(target: Target, folder: Path) -> Found:
    """Convert a volume, and read what the catalogue names; an empty array where it names nothing or several."""
    stored = folder.with_name(f"{folder.name}.converted")
    options = ConvertOptions(hints=Hints(axes="DHW"), workers=1, max_memory=_MEMORY)
    try:
        catalog = Catalog.read(convert(folder / target.path, stored, options=options).catalog)
        if len(catalog.keys) != 1:
            return np.empty(0)
        entry = catalog.entry(*catalog.keys[0])
        found = _read(Location(str(stored / entry.path), entry.dataset))
        if found.shape == (1, *VALUES.shape) and (found == found.astype(VALUES.dtype)).all():
            return found.astype(VALUES.dtype)  # the same numbers of a wider type
        return found
    finally:
        shutil.rmtree(stored, ignore_errors=True)


def _read(location: Location) -> Found:
    with closing(open_reader(location)) as reader:
        info = reader.describe()
        box = info.whole
        if info.decoded_bytes > _SMALL:
            box = Box((0, 0, 0), tuple(min(EXTENT, extent) for extent in info.spatial))
        if info.shape[0] * box.size * info.dtype.itemsize > _SMALL:
            box = Box((0, 0, 0), (1, 1, 1))
        reader.cost(box)
        out = np.empty((min(info.shape[0], _SMALL), *box.shape), info.native_dtype)
        out.view(np.uint8)[...] = 0xA5
        reader.read_into(box, out)
        if is_right(out):
            inner = np.zeros((1, *_INNER.shape), out.dtype)
            reader.read_into(_INNER, inner)
            out[(slice(None), *_INNER.slices)] = inner
        return out
