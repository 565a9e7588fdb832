"""table_of_cells: rows of text or numbers, with or without a column that names the samples, made into a table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from voxload.convert.targets.table import NamedTargets, RowTargets, TargetTable
from voxload.errors import DataError, UsageError

_SAMPLE_COLUMNS = ("sample", "id", "name", "file")
"""Names of columns that name samples, in any case."""


def table_of_cells(subject: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> TargetTable:
    """Return the table of columns of cells.

    Raises
    ------
    UsageError
        When two columns might name the samples.
    DataError
        When a column or a sample appears twice, a row has another length, or a value is no finite number.
    """
    _check_once(f"{subject}, header", columns)
    if not rows:
        raise DataError(subject, found="no row", expected="one for each sample")
    uneven = [number for number, row in enumerate(rows) if len(row) != len(columns)]
    if uneven:
        raise DataError(
            f"{subject}, row {uneven[0]}", found=f"{len(rows[uneven[0]])} values", expected=f"{len(columns)}"
        )
    places = [place for place, column in enumerate(columns) if column.lower() in _SAMPLE_COLUMNS]
    if len(places) > 1:
        raise UsageError(
            subject,
            found=f"columns {', '.join(repr(columns[place]) for place in places)}",
            expected="one that names the samples",
            remedy="rename or remove the others",
        )
    names = [column for place, column in enumerate(columns) if place not in places]
    if not names:
        raise DataError(subject, found=f"the one column {columns[0]!r}", expected="columns of targets")
    labels = [str(row[places[0]]).strip() for row in rows] if places else [f"{row}" for row in range(len(rows))]
    numbers = [
        [
            finite_number(f"{subject}, row {label!r}, column {columns[place]!r}", value)
            for place, value in enumerate(row)
            if place not in places
        ]
        for label, row in zip(labels, rows, strict=True)
    ]
    if not places:
        return RowTargets(subject, names, numbers)
    _check_once(f"{subject}, column {columns[places[0]]!r}", labels)
    return NamedTargets(
        subject, {label: dict(zip(names, row, strict=True)) for label, row in zip(labels, numbers, strict=True)}
    )


def table_of_mapping(subject: str, targets: Mapping[str, object]) -> TargetTable:
    """Return the table of a mapping from sample to its targets; raises DataError where their names differ."""
    if not targets:
        raise DataError(subject, found="no sample", expected="targets for each sample")
    _check_once(subject, [str(sample) for sample in targets])
    first, wanted = next(iter(targets.items()))
    found: dict[str, dict[str, float]] = {}
    for sample, values in targets.items():
        if (
            not isinstance(values, Mapping)
            or not isinstance(wanted, Mapping)
            or not values
            or set(values) != set(wanted)
        ):
            raise DataError(
                f"{subject}, sample {sample!r}",
                found=f"targets {sorted(map(str, values))}" if isinstance(values, Mapping) else repr(values),
                expected=f"a value for each target that sample {first!r} has",
            )
        found[str(sample)] = {
            str(name): finite_number(f"{subject}, sample {sample!r}, target {name!r}", values[name]) for name in wanted
        }
    return NamedTargets(subject, found)


def finite_number(subject: str, value: object) -> float:
    """Return a value as a float; raises DataError unless it is a finite number."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise DataError(subject, found=repr(value), expected="a finite number", remedy="mend or remove it")
    return number


def _check_once(subject: str, names: Sequence[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1 or not name]
    if twice:
        raise DataError(
            subject, found=f"{twice[0]!r} more than once" if twice[0] else "an empty name", expected="each name once"
        )
