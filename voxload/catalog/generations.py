"""Generations: which append the rows of a growing catalogue came by, and what it was like at an earlier one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from voxload.catalog.columns import GENERATION, numbers
from voxload.catalog.table import Catalog
from voxload.errors import UsageError
from voxload.files.regular import open_regular


def generation_of(catalog: Catalog) -> int:
    """Return the generation of a catalogue: that of the last append, 0 of one that nothing was appended to."""
    table = catalog.whole
    if GENERATION not in table.column_names or not table.num_rows:
        return 0
    return int(pc.max(table.column(GENERATION)).as_py())


def first_generations(catalog: Catalog) -> npt.NDArray[np.int64]:
    """Return for each sample, in the order of their ids, the generation that its first row came by."""
    count, table = len(catalog.index.samples), catalog.whole
    if GENERATION not in table.column_names:
        return np.zeros(count, np.int64)
    first = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first, catalog.index.sample_of_row, numbers(table.column(GENERATION)))
    return first


def is_growing(place: Path) -> bool:
    """Tell whether rows were appended to a catalogue's file; of one that is damaged nobody knows.

    Raises UsageError for a pipe or a device.
    """
    try:
        with open_regular(place) as file:
            return GENERATION in pq.read_schema(file).names
    except (pa.ArrowException, OSError):
        return False


def at_generation(catalog: Catalog, generation: int) -> Catalog:
    """Return a catalogue as it was at a generation that is behind it.

    Raises UsageError for one that it has not come to.
    """
    last = generation_of(catalog)
    if not 0 <= generation <= last:
        raise UsageError(
            f"catalogue in {catalog.root}",
            found=f"generation {last}",
            expected=f"{generation}, or a later one",
            remedy="name the catalogue that was read before",
        )
    if generation == last:
        return catalog
    table = catalog.whole
    kept = table.filter(pc.less_equal(table.column(GENERATION), generation))
    return Catalog(kept, catalog.root, allow_outside=catalog.allow_outside)
