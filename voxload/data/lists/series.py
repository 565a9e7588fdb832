"""Series: arrays that hold many samples, or many time steps, as lists of samples of their own.

How many there are stands in the files, or in a catalogue: files that no catalogue describes are opened once, when the
list is made, for their shape.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from voxload.catalog.query.conditions import Condition
from voxload.data.lists.names import Names
from voxload.data.lists.reading import SERIES_AXES, lead_at, series_axes
from voxload.data.lists.samples import Sample, Samples
from voxload.data.lists.selection import chosen_of
from voxload.data.lists.shapes import lead_of, of_each
from voxload.data.lists.window import Window
from voxload.errors import DataError, UsageError
from voxload.readers.handles import Handles
from voxload.readers.registry import find_format

Numbers = npt.NDArray[np.float64]


def has_series(samples: Samples) -> bool:
    """Tell whether arrays of a list of samples have axes N or T; of those whose axes their files name, none has."""
    return bool(samples.ids) and any(series_axes(location) for location in samples.sample(0).locations)


@dataclass(frozen=True, slots=True)
class Extents:
    """What the arrays of one stored sample hold."""

    samples: int
    """Extent of axis N; 1 where no field has one."""
    steps: int
    """Extent of axis T; 1 where no field has one."""


class SeriesSamples:
    """The samples, and the windows in time, of arrays that hold many; see Samples.

    Samples of one array stand in their order, and windows of one sample in theirs.

    Parameters
    ----------
    stored
        What is stored.
    extents
        Of each of its samples.
    window
        What of a series of steps makes a sample; None where no array has an axis T.
    columns
        By name, for each stored sample a number for each of its steps.

    Raises
    ------
    DataError
        When no series is as long as a window.
    """

    def __init__(
        self,
        stored: Samples,
        extents: Sequence[Extents],
        window: Window | None,
        *,
        columns: Mapping[str, Sequence[Numbers]] | None = None,
    ) -> None:
        self.fields, self.targets_in_file = stored.fields, stored.targets_in_file
        self._stored, self._window, self._extents = stored, window, tuple(extents)
        self._columns = dict(columns or {})
        self._windows = [1 if window is None else window.count(one.steps) for one in extents]
        counts = [one.samples * windows for one, windows in zip(extents, self._windows, strict=True)]
        self._ends = list(accumulate(counts))
        if not self._ends or not self._ends[-1]:
            longest = max((one.steps for one in extents), default=0)
            raise DataError(
                "data set",
                found=f"series of up to {longest} time steps",
                expected=f"{window.span if window else 1} or more for one window",
                remedy="choose a shorter window",
            )
        self._axes = [series_axes(location) for location in stored.sample(0).locations]
        self.ids: Sequence[str] = Names(self._ends[-1], self.id)

    def place(self, index: int) -> tuple[int, int, int]:
        """Return the stored sample that a sample is of, its index along N, and its window's number."""
        number = bisect_right(self._ends, index)
        within = index - (self._ends[number - 1] if number else 0)
        return number, within // self._windows[number], within % self._windows[number]

    def where(self, condition: Condition) -> list[int]:
        """Return the indices of the parts of samples for which a condition holds; see `CatalogSamples.where`."""
        chosen = set(chosen_of(self._stored, condition))
        return [index for index in range(self._ends[-1]) if self.place(index)[0] in chosen]

    def id(self, index: int) -> str:
        """Return a sample's id."""
        number, sample, window = self.place(index)
        parts = [f"n{sample}"] if any("N" in axes for axes in self._axes) else []
        if self._window is not None:
            parts.append(f"t{window * self._window.stride}")
        return f"{self._stored.ids[number]}[{','.join(parts)}]"

    def sample(self, index: int) -> Sample:
        """Return one sample: the stored one's arrays, with the index and the steps that are its own."""
        number, sample, window = self.place(index)
        stored = self._stored.sample(number)
        steps = None if self._window is None else self._window.steps(window)
        locations = tuple(
            replace(location, lead=lead_at(axes, sample, steps)) if axes else location
            for location, axes in zip(stored.locations, self._axes, strict=True)
        )
        row = (sample, self._extents[number].samples) if any("N" in axes for axes in self._axes) else None
        values = dict(stored.values)
        for name, numbers in self._columns.items():
            values[name] = numbers[number][list(steps or (0,))]
        return Sample(self.id(index), locations, stored.targets, row, values=values)


def series_of(stored: Samples, window: Window | None, handles: Handles, columns: Sequence[str] = ()) -> SeriesSamples:
    """Return the samples and windows of arrays with axes N or T.

    Without a `window`, each time step is a sample. `columns` name one-dimensional datasets of each file that have a
    number for each time step.

    Raises
    ------
    UsageError
        When a window or columns are given and no array has an axis T.
    NotFoundError
        When a file has no such dataset.
    DataError
        When the fields of a stored sample hold unequal numbers of samples or steps, or a column another number of
        values, or some that are not finite; what opening files raises.
    """
    has_steps = any("T" in series_axes(location) for location in stored.sample(0).locations)
    if window is not None and not has_steps:
        raise UsageError(
            "window",
            found="arrays without a time axis",
            expected="an axis T",
            remedy='name it, such as axes="TCDHW" or, by field, axes={"x": "TCDHW"}',
        )

    if columns and not has_steps:
        raise UsageError(
            "columns", found=f"{columns[0]!r} of arrays without a time axis", expected="columns of the catalogue"
        )
    found = of_each(stored, lambda sample: _extents(sample, handles))
    numbers = {name: _of_steps(stored, name, found) for name in columns}
    return SeriesSamples(stored, found, (window or Window(1)) if has_steps else None, columns=numbers)


def _of_steps(stored: Samples, name: str, extents: Sequence[Extents]) -> list[Numbers]:
    """Return a number for each time step of each stored sample."""
    found = []
    for number, one in enumerate(extents):
        sample = stored.sample(number)
        path = sample.locations[0].path
        values = np.asarray(find_format(path).read_vector(path, name), np.float64)
        if values.shape != (one.steps,) or not np.isfinite(values).all():
            what = f"{len(values)} values" if len(values) != one.steps else "values that are not finite"
            raise DataError(
                f"column {name!r} of sample {sample.id!r}",
                found=what,
                expected=f"{one.steps} finite numbers, one for each time step",
                remedy="name a dataset that has them",
            )
        found.append(values)
    return found


def _extents(sample: Sample, handles: Handles) -> Extents:
    """Return what a stored sample's arrays hold; opens those whose shape is not known."""
    leads: dict[str, dict[str, int]] = {}
    for location in sample.locations:
        axes = series_axes(location)
        if not axes:
            continue
        lead = lead_of(location, handles)
        for axis, extent in zip(SERIES_AXES, lead, strict=False):
            if axis in axes:
                leads.setdefault(axis, {})[str(location)] = extent
    for axis, extents in leads.items():
        if len(set(extents.values())) > 1:
            raise DataError(
                f"sample {sample.id!r}",
                found=", ".join(f"{extent} in {name}" for name, extent in extents.items()),
                expected=f"fields of one extent along {axis}",
            )
    samples, steps = (next(iter(leads.get(axis, {"": 1}).values())) for axis in SERIES_AXES)
    return Extents(samples, steps)
