"""merge: the rows of several catalogues as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from voxload.catalog.rows import PATHS, Rows, relocated, resolved
from voxload.errors import DataError, UsageError

_KEY = ("sample", "dataset")


def merge(catalogs: Sequence[Rows], folder: Path, *, common_targets: bool = False) -> Rows:
    """Return the rows of all catalogues, sorted by id, with paths relative to `folder`.

    A volume that several catalogues have in equal rows is there once. Columns of other tools are kept where all
    catalogues have them. Universes of one name are one universe.

    Parameters
    ----------
    catalogs
        One or more.
    folder
        The folder of the catalogue that they become.
    common_targets
        Keep the targets that all have, instead of refusing catalogues whose targets differ.

    Raises
    ------
    UsageError
        When targets differ, or a column of other tools has types that cannot be brought together.
    DataError
        When two catalogues say different things of one volume, or of one sample's targets.
    """
    if not catalogs:
        raise UsageError("merge", found="no catalogue", expected="one or more")
    columns = _columns(catalogs, common_targets=common_targets)
    moved = [relocated(rows, folder) for rows in catalogs]
    tables = [rows.table.select(columns) for rows in moved]
    types = {name: _common_type(name, catalogs) for name in columns}
    joined = pa.concat_tables([_cast(table, types, rows) for table, rows in zip(tables, catalogs, strict=True)])
    targets = tuple(name for name in catalogs[0].targets if name in columns)
    every = Rows(joined, folder, targets)
    origins = [rows.name for rows in catalogs for _ in range(len(rows))]
    once = every.table.take(pa.array(_first_of_each(every, origins), pa.int64()))
    found = every.with_table(once.sort_by([(name, "ascending") for name in _KEY]).combine_chunks())
    _check_targets(found)
    return Rows.of(found.table, folder)


def _columns(catalogs: Sequence[Rows], *, common_targets: bool) -> list[str]:
    """Return the columns that the merged catalogue has."""
    first = catalogs[0]
    for rows in catalogs:
        if set(rows.targets) != set(first.targets) and not common_targets:
            raise UsageError(
                f"targets of {rows.name}",
                found=str(sorted(rows.targets)),
                expected=f"those of {first.name}, {sorted(first.targets)}",
                remedy="--common-targets keeps those that all have",
            )
    return [
        name
        for name in first.table.column_names
        if all(name in rows.table.column_names for rows in catalogs)
        and len({name in rows.targets for rows in catalogs}) == 1
    ]


def _common_type(name: str, catalogs: Sequence[Rows]) -> pa.DataType:
    """Return the type that a column has in all catalogues, or can be brought to."""
    kinds = list(dict.fromkeys(rows.table.schema.field(name).type for rows in catalogs))
    try:
        schema = pa.unify_schemas([pa.schema([(name, kind)]) for kind in kinds], promote_options="permissive")
    except pa.ArrowException as error:
        raise UsageError(
            f"column {name!r}",
            found=f"types {', '.join(map(str, kinds))}",
            expected="one type in all catalogues",
            remedy="leave the column out of one",
        ) from error
    return schema.field(name).type


def _cast(table: pa.Table, types: Mapping[str, pa.DataType], rows: Rows) -> pa.Table:
    """Return a table with columns of these types; raises UsageError where a value would change."""
    arrays = []
    for name, kind in types.items():
        try:
            arrays.append(table.column(name).cast(kind))
        except pa.ArrowException as error:
            raise UsageError(
                f"column {name!r} of {rows.name}",
                found=str(error).splitlines()[0].rstrip("."),
                expected=f"values that type {kind} holds, which another catalogue needs",
            ) from error
    return pa.Table.from_arrays(arrays, names=list(types))


def _first_of_each(rows: Rows, origins: Sequence[str]) -> list[int]:
    """Return the first row of each volume; raises DataError where a later one differs."""
    first: dict[tuple[str, str], int] = {}
    pairs = []
    for place, key in enumerate(zip(rows.samples, rows.strings("dataset"), strict=True)):
        if first.setdefault(key, place) != place:
            pairs.append((first[key], place))
    if pairs:
        _check_equal(rows, pairs, origins)
    return list(first.values())


def _check_equal(rows: Rows, pairs: Sequence[tuple[int, int]], origins: Sequence[str]) -> None:
    """Refuse pairs of rows of one volume that differ in any column."""
    one, other = (rows.with_table(rows.table.take(pa.array(places, pa.int64()))) for places in zip(*pairs, strict=True))
    for name in rows.table.column_names:
        if one.table.column(name).equals(other.table.column(name)):
            continue
        values = zip(_comparable(one, name), _comparable(other, name), strict=True)
        for place, (a, b) in enumerate(values):
            if a != b:
                raise DataError(
                    f"sample {one.samples[place]!r}, dataset {one.strings('dataset')[place]!r}, column {name!r}",
                    found=" and ".join(
                        f"{value} in {origins[at]}" for value, at in zip((a, b), pairs[place], strict=True)
                    ),
                    expected="equal rows",
                    remedy="leave one of them out with voxload catalog filter",
                )


def _comparable(rows: Rows, column: str) -> list[str]:
    """Return a column as text, in which NaN is equal to itself; paths without links."""
    values = resolved(rows, column) if column in PATHS else rows.table.column(column).to_pylist()
    return list(map(repr, values))


def _check_targets(rows: Rows) -> None:
    """Refuse a sample whose rows, of different catalogues, have different targets."""
    values = zip(*(rows.table.column(name).to_pylist() for name in rows.targets), strict=True)
    first: dict[str, str] = {}
    for sample, found in zip(rows.samples, map(repr, values), strict=False):  # no values without targets
        if first.setdefault(sample, found) != found:
            raise DataError(
                f"sample {sample!r}",
                found=f"targets {first[sample]} and {found} of {list(rows.targets)}",
                expected="the same in all rows of the sample",
                remedy="leave one of them out with voxload catalog filter",
            )
