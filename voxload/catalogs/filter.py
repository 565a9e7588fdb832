"""filter: the rows of a catalogue for which a condition holds, or of samples on a list."""

from __future__ import annotations

from collections.abc import Iterable

from voxload.catalogs.condition import Condition
from voxload.catalogs.rows import Rows
from voxload.errors import NotFoundError


def filter_rows(rows: Rows, *, where: Condition | None = None, samples: Iterable[str] | None = None) -> Rows:
    """Return the rows, in their order, for which `where` holds and whose sample is one of `samples`.

    Raises
    ------
    UsageError
        When the condition names no column, or compares what cannot be compared.
    NotFoundError
        When a sample is not there.
    """
    found = rows
    if samples is not None:
        wanted = set(samples)
        unknown = wanted - set(rows.samples)
        if unknown:
            remedy = "take it off the list" if len(unknown) == 1 else f"{len(unknown)} of the list are not there"
            raise NotFoundError(rows.name or "the catalogue", found=f"no sample {min(unknown)!r}", remedy=remedy)
        found = rows.keep([sample in wanted for sample in rows.samples])
    return found if where is None else found.keep(where.holds(found.table))
