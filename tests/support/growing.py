"""Catalogues that grow, of samples that say which they are in each voxel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.support.settled import settle
from voxload.catalog import Catalog, Entry, Rows
from voxload.catalog.append import append

EXTENT = 4
"""Of a sample along each axis."""
STEP = 100
"""Voxels of a sample are so many times its number, and their place."""


def cube(number: int) -> npt.NDArray[np.int16]:
    """Return the voxels of a sample."""
    return (STEP * number + np.arange(EXTENT**3)).reshape((EXTENT,) * 3).astype(np.int16)


def number_of(volume: Any) -> int:
    """Return the sample that a block, of any voxels of it, is of."""
    found = {int(number) for number in np.unique(np.asarray(volume) // STEP)}
    assert len(found) == 1
    return found.pop()


def grown(place: Path, *numbers: int, settled: bool = False) -> int:
    """Append samples of these numbers to a catalogue; return its generation.

    Where they are to be `settled` they seem to have been written long ago, as far as who reads them can tell.
    """
    folder = place / f"n{numbers[0]}"
    folder.mkdir(parents=True)
    entries = []
    for number in numbers:
        name = f"s{number:03}"
        np.save(folder / f"{name}.npy", cube(number))
        entries.append(Entry(name, f"{name}.npy", "", (EXTENT,) * 3, "<i2", "DHW", 2 * EXTENT**3, {"t": number}))
    if settled:
        settle(folder)
    rows = Rows.of(Catalog.from_entries(entries, folder).whole, folder, name=str(folder))
    return append(place, [rows]).generation
