"""figures: the statistics of many volumes as those of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from voxload.catalog.rows import Rows
from voxload.catalog.statistics import Summary
from voxload.errors import DataError

_COUNTS = ("count", "nan_count", "inf_count")
_FIGURES = (*_COUNTS, "min", "max", "mean", "std")


@dataclass(frozen=True, slots=True)
class FieldFigures:
    """Figures of all volumes of one dataset name together."""

    volumes: int
    """Volumes whose figures these are."""
    unknown: int
    """Volumes without statistics, which are not in the figures."""
    whole: Summary | None
    """All channels together; None when no volume has statistics."""
    channels: tuple[Summary, ...]
    """Each channel; none where the volumes do not have equally many."""


def field_figures(rows: Rows) -> dict[str, FieldFigures]:
    """Return the figures of each field, by dataset name, merged as if its volumes were one.

    Raises DataError when a row's statistics lack figures.
    """
    return {name: _merged(rows.keep(pc.equal(rows.table.column("dataset"), name))) for name in _datasets(rows)}


def _datasets(rows: Rows) -> list[str]:
    return sorted(set(rows.strings("dataset")))


def _merged(rows: Rows) -> FieldFigures:
    """Return the figures of one field."""
    known = rows.keep(rows.table.column("statistics").is_valid())
    unknown = len(rows) - len(known)
    if not len(known):
        return FieldFigures(0, unknown, None, ())
    column = known.table.column("statistics").combine_chunks()
    samples = known.samples
    return FieldFigures(len(known), unknown, _together(column, samples), tuple(_channels(column, samples)))


def _channels(column: pa.StructArray, samples: Sequence[str]) -> Iterator[Summary]:
    """Yield the figures of each channel, where all volumes have equally many."""
    lists = pc.struct_field(column, "channels")
    counts = pc.unique(pc.list_value_length(lists)).to_pylist()
    if len(counts) != 1:
        return
    flat = pc.list_flatten(lists)
    for channel in range(counts[0] or 0):
        yield _together(flat.take(pa.array(range(channel, len(flat), counts[0]))), samples)


def _together(column: pa.StructArray, samples: Sequence[str]) -> Summary:
    """Return the figures of all rows of a column together. Source of the mean: shifted by the first, weighted."""
    known = pc.struct_field(column, "count")
    is_counted = pc.fill_null(pc.not_equal(known, 0), fill_value=True)
    for name in _FIGURES:
        is_missing = pc.is_null(pc.struct_field(column, name))
        is_wrong = is_missing if name in _COUNTS else pc.and_(is_missing, is_counted)
        place = pc.index(is_wrong, True).as_py()
        if place >= 0:
            raise DataError(
                f"statistics of sample {samples[place]!r}", found=f"no {name}", expected="all figures, or none at all"
            )
    count, nan_count, inf_count = (int(pc.sum(pc.struct_field(column, name)).as_py() or 0) for name in _COUNTS)
    if not count:
        return Summary(count, nan_count, inf_count, None, None, None, None)
    counted = column.filter(is_counted)
    weights, low, high, means, stds = (
        pc.struct_field(counted, name).to_numpy(zero_copy_only=False).astype(np.float64)
        for name in ("count", "min", "max", "mean", "std")
    )
    mean = means[0] + np.sum(weights * (means - means[0])) / count
    variance = np.sum(weights * (np.square(stds) + np.square(means - mean))) / count
    return Summary(
        count, nan_count, inf_count, float(low.min()), float(high.max()), float(mean), float(np.sqrt(variance))
    )
