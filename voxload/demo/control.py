"""Control: the demo's catalogue with labels that say nothing about the universes."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyarrow as pa

from voxload.catalog import Catalog


def shuffled_labels(catalog: Catalog, samples: Sequence[str], *, seed: int) -> Catalog:
    """Return `catalog` with the targets of `samples` dealt out anew among them; all other rows are as they were.

    A network that still predicted held-out targets from such labels would be reading them from somewhere else.
    """
    dealt = list(samples)
    random.Random(seed).shuffle(dealt)  # noqa: S311 - a control needs no secrecy
    giver = dict(zip(samples, dealt, strict=True))
    names = catalog.table.column("sample").to_pylist()
    row_of = {name: row for row, name in enumerate(names)}
    rows = pa.array([row_of[giver.get(name, name)] for name in names])
    table = catalog.table
    for target in catalog.target_names:
        place = table.column_names.index(target)
        table = table.set_column(place, target, table.column(target).take(rows))
    return Catalog(table, catalog.root, allow_outside=catalog.allow_outside)
