"""Following: a catalogue that others append to while it is read, and which generation of it a data set has."""

from __future__ import annotations

import os
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from voxload.catalog.columns import from_numbers
from voxload.catalog.generations import at_generation, first_generations, generation_of
from voxload.catalog.places import catalog_path
from voxload.catalog.query.conditions import Condition
from voxload.catalog.table import Catalog
from voxload.data.lists.listing import Listing
from voxload.data.lists.samples import Samples
from voxload.data.lists.selection import chosen_of, selected
from voxload.errors import DataError, UsageError
from voxload.readers.store import is_url


@dataclass(frozen=True)
class Following:
    """One generation of a catalogue that grows, as samples; immutable but for what was seen last of later ones.

    A sample's index is the same in all later generations.
    """

    place: str
    """The catalogue, its folder, or the URL of either."""
    listing: Listing
    """How its samples are listed."""
    catalog: Catalog
    """As it was at the generation."""
    conditions: tuple[Condition, ...] = ()
    """Which samples are taken, at every generation by the same."""
    _latest: _Latest = field(default_factory=lambda: _Latest())  # noqa: PLW0108 - it is defined below

    @classmethod
    def of(cls, source: Any, listing: Listing) -> Following:
        """Return the newest generation of a catalogue; raises UsageError for other sources than its path or URL."""
        if not isinstance(source, str | os.PathLike):
            raise UsageError(
                "follow",
                found=f"a {type(source).__name__}",
                expected="the path of a catalogue, or its folder's, which is read again and again",
                remedy="name the catalogue",
            )
        place, latest = os.fspath(source), _Latest()
        return cls(place, listing, latest.look(place, allow_outside=listing.allow_outside), _latest=latest)

    @cached_property
    def generation(self) -> int:
        """That of the samples."""
        return generation_of(self.catalog)

    @cached_property
    def samples(self) -> Samples:
        """The samples; raises UsageError where there is none that fulfils the conditions."""
        found = self.listing.growing(self.catalog)
        for condition in self.conditions:
            found = selected(found, chosen_of(found, condition))
        return found

    def narrowed(self, condition: Condition) -> Following:
        """Return the same, of those samples only for which a condition on the catalogue's columns holds."""
        return replace(self, conditions=(*self.conditions, condition))

    def newest(self) -> int:
        """Look at the catalogue, and return its generation now; raises as `Catalog.read`."""
        return generation_of(self._look())

    def at(self, generation: int) -> Following:
        """Return another generation of the catalogue.

        Raises
        ------
        UsageError
            When the catalogue has not come to it.
        DataError
            When it is not the catalogue any more of which this is a generation.
        """
        if generation == self.generation:
            return self
        latest = self._look()
        found = replace(self, catalog=at_generation(latest, generation))
        first, second = sorted((self, found), key=lambda one: one.generation)
        was_there = from_numbers(np.flatnonzero(first_generations(second.catalog) <= first.generation))
        if not second.catalog.index.samples.take(was_there).equals(first.catalog.index.samples):
            raise DataError(
                f"catalogue {self.place}",
                found=f"other samples at generation {first.generation} than were read of it",
                expected="a catalogue that rows are only added to",
                remedy="read one that was written anew with a new loader",
            )
        return found

    def _look(self) -> Catalog:
        return self._latest.look(self.place, allow_outside=self.listing.allow_outside)


class _Latest:
    """A catalogue as it was seen last, read again where its file is another one; used by one thread."""

    def __init__(self) -> None:
        self._seen: tuple[Hashable, Catalog] | None = None

    def look(self, place: str, *, allow_outside: bool) -> Catalog:
        """Return the catalogue as it is now."""
        mark = None if is_url(place) else _mark(catalog_path(place))
        if self._seen is None or mark is None or self._seen[0] != mark:
            # The mark is older than what is read: at worst the same is read again.
            self._seen = mark, Catalog.read(place, allow_outside=allow_outside, has_statistics=False)
        return self._seen[1]


def _mark(path: Path) -> Hashable:
    """Return what tells a catalogue's file from one that was put in its place; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
