"""Listing: from what the user named to the list of samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from voxload.catalog.table import Catalog
from voxload.data.lists.growing import GrowingSamples
from voxload.data.lists.patches import Patches, patches_of
from voxload.data.lists.reading import Reading
from voxload.data.lists.row_values import SAMPLE
from voxload.data.lists.samples import Axes, Fields, Samples, list_samples
from voxload.data.lists.series import has_series, series_of
from voxload.data.lists.sources import Source
from voxload.data.lists.window import Window
from voxload.errors import NotFoundError, UsageError
from voxload.readers.attributes import is_attribute
from voxload.readers.handles import Handles

_SUCH_AS = {"window": "Window(8, horizon=4)", "patches": "Patches(64, per_sample=100)"}


@dataclass(frozen=True, slots=True)
class Parts:
    """What of the stored volumes makes a sample."""

    window: Window | None = None
    """What of a series of time steps; None makes a sample of each step, where there are any."""
    patches: Patches | None = None
    """Which boxes; None takes volumes whole."""

    def __post_init__(self) -> None:
        for name, given, kind in (("window", self.window, Window), ("patches", self.patches, Patches)):
            if given is not None and not isinstance(given, kind):
                expected = f"a {kind.__name__}, such as voxload.{_SUCH_AS[name]}"
                raise UsageError(name, found=repr(given), expected=expected)

    def of(self, stored: Samples, handles: Handles, columns: Sequence[str] = ()) -> Samples:
        """Return the samples that stored ones are parted into; opens files whose shapes have to be known and are not.

        Columns that no catalogue has, and that are no attributes, are those of time steps.

        Raises UsageError or DataError where they cannot be parted so, NotFoundError for columns that nothing has, and
        what opening files raises.
        """
        found, others = stored, _others(stored, columns)
        if self.window is not None or has_series(stored):
            found = series_of(stored, self.window, handles, others)
        elif others:
            raise NotFoundError(
                f"column {others[0]!r}",
                found="none in the catalogue" if stored.sample(0).values else "no catalogue that has it",
                expected="a column, node@attribute, or with time steps a dataset that has a number for each",
                remedy="name another; voxload catalog list shows those of a catalogue",
            )
        return found if self.patches is None else patches_of(found, self.patches, handles)


@dataclass(frozen=True, slots=True)
class Listing:
    """How a data set lists its samples; its lists are of the same fields, whatever they are of."""

    fields: Fields
    targets: tuple[str, ...]
    columns: tuple[str, ...]
    axes: Axes
    allow_outside: bool
    how: Reading
    parts: Parts
    handles: Handles
    """Opens files whose shapes have to be known and are not."""

    def of(self, source: Source) -> Samples:
        """Return the samples that `source` names; raises as `list_samples` and `Parts.of`."""
        return self.parts.of(self._stored(source), self.handles, self.columns)

    def growing(self, catalog: Catalog) -> Samples:
        """Return those of a catalogue that grows, which keep their places when it does."""
        return self.parts.of(GrowingSamples(self._stored(catalog), catalog), self.handles, self.columns)

    def _stored(self, source: Source) -> Samples:
        return list_samples(
            source,
            fields=self.fields,
            targets=self.targets,
            axes=self.axes,
            columns=self.columns,
            allow_outside=self.allow_outside,
            how=self.how,
        )


def _others(stored: Samples, columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that are those of no catalogue, and no attributes."""
    wanted = [name for name in columns if name != SAMPLE and not is_attribute(name)]
    known = stored.sample(0).values if wanted and stored.ids else {}
    return tuple(name for name in wanted if name not in known)
