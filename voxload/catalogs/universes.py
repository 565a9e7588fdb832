"""universes: which samples were cut from the same whole, directly or by way of another sample."""

from __future__ import annotations

from voxload.catalogs.rows import Rows
from voxload.errors import DataError


def universes_of(rows: Rows) -> dict[str, str]:
    """Return the universe of each sample: what it was cut from in the end; its own id where it is whole.

    A whole sample of which another one was cut is in that one's universe.

    Raises DataError when the rows of a sample name different universes, or two samples were cut from each other.
    """
    parents = _parents(rows)
    found: dict[str, str] = {}
    for sample in parents:
        seen = [sample]
        while parents.get(seen[-1], "") not in ("", seen[-1]):
            parent = parents[seen[-1]]
            if parent in seen:
                raise DataError(
                    f"universe of sample {sample!r} in {rows.name or 'the catalogue'}",
                    found=f"a circle, {' of '.join(map(repr, [*seen, parent]))}",
                    expected="a whole at its end",
                )
            seen.append(parent)
        found[sample] = seen[-1]
    return found


def _parents(rows: Rows) -> dict[str, str]:
    """Return what the column says of each sample."""
    found: dict[str, str] = {}
    for sample, universe in zip(rows.samples, rows.strings("universe"), strict=True):
        if found.setdefault(sample, universe) != universe:
            raise DataError(
                f"sample {sample!r} in {rows.name or 'the catalogue'}",
                found=f"universes {found[sample]!r} and {universe!r}",
                expected="one in all rows of the sample",
            )
    return found
