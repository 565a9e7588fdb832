"""Samples: what the user named, as a list of samples with the places of their volumes.

Listing opens no volume. The order is the sorted order of the ids, so that every rank counts alike.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from typing import Any, Protocol, SupportsIndex

import numpy as np
import pyarrow.compute as pc

from voxload.catalog.columns import numbers
from voxload.catalog.places import Folder, place_of
from voxload.catalog.query.conditions import Condition
from voxload.catalog.table import Catalog, Entry
from voxload.data.lists.names import ColumnNames
from voxload.data.lists.reading import PLAIN, USUAL, Reading
from voxload.data.lists.row_values import SAMPLE, RowValues
from voxload.data.lists.sources import Source, catalog_at, check_source, ids_of, named_objects, paths_of
from voxload.errors import DataError, NotFoundError, UsageError
from voxload.readers.axes import AxisOrder
from voxload.readers.protocol import ChecksumSource, Location, Window

Fields = Mapping[str, str | Sequence[str]] | None
"""By name of the field, the dataset, or the datasets whose channels it has; None for the only volume there is."""
Axes = str | Mapping[str, str] | None
"""Order of the axes as stored: of all fields, or by field name; None to take it from the files."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample: where its volumes are, and its targets as far as they are known without opening a file."""

    id: str
    """Sample id, unique in its data set."""
    locations: tuple[Location, ...]
    """Place of each field's volume, in the order of the fields."""
    targets: tuple[float, ...] | None
    """Values from the catalogue; None where they stand in the file or none were asked for."""
    row: tuple[int, int] | None = None
    """Its index among so many samples of one array, whose targets stand one behind the other; None where it is one."""
    whole: int | None = None
    """Number of the sample that it is a patch of; None where it is none."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """What its row, or its file, says in the columns that an item has, but for the id; see `RowValues`."""

    def parts(self, columns: Sequence[str], others: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return some columns, its id among them, or of `others`, lists as arrays; DataError where one is null."""
        found = tuple({**self.values, **others, SAMPLE: self.id}[name] for name in columns)
        name = next((name for name, value in zip(columns, found, strict=True) if value is None), None)
        if name is not None:
            raise DataError(
                f"column {name!r} of sample {self.id!r}",
                found="no value",
                expected="one",
                remedy=f"choose samples that have one by subset(where='{name} != null'), or leave the column out",
            )
        return found


class Samples(Protocol):
    """An indexed list of samples; immutable, safe to share between threads and to send to processes."""

    @property
    def ids(self) -> Sequence[str]:
        """Sample ids, in the order of the indices."""
        ...

    fields: tuple[str, ...]
    """Names of the fields, in the order of a sample's volumes."""
    targets_in_file: tuple[str, ...]
    """Names of one-dimensional datasets in each sample's file that hold its targets."""

    def sample(self, index: int) -> Sample:
        """Return one sample; costs no I/O."""
        ...


_RECENT = 64
"""Samples that are remembered: of as many batches as are read at a time."""


class RecentSamples:
    """A list of samples by any index, of which those asked for last are remembered; safe to use from many threads.

    Reading a sample for the first time asks some five times which one it is, and a row of a table takes long to make.

    Parameters
    ----------
    samples
        The list.
    """

    def __init__(self, samples: Samples) -> None:
        self._samples, self._sample = samples, lru_cache(_RECENT)(samples.sample)

    def __reduce__(self) -> tuple[type[RecentSamples], tuple[Samples]]:
        return RecentSamples, (self._samples,)

    def at(self, index: int) -> Sample:
        """Return the sample of an index, which counts from the end where it is negative; costs no I/O.

        Raises UsageError for what is no whole number, IndexError where there is no such sample.
        """
        # Nearly always it is an int, which needs no look at what else there might be: that costs as much as a file.
        if type(index) is not int and not isinstance(index, SupportsIndex):
            raise UsageError(
                "index of a sample",
                found=repr(index),
                expected="an integer",
                remedy="torch.utils.data.Subset(data, range(...)) holds several",
            )
        count = len(self._samples.ids)
        if not -count <= index < count:
            raise IndexError(f"sample {index} of a data set of {count}")
        return self._sample(index % count)


class CatalogSamples:
    """The samples of a catalogue.

    Raises NotFoundError for unknown datasets and targets, DataError for targets that are not finite.
    """

    targets_in_file: tuple[str, ...] = ()

    def __init__(
        self,
        catalog: Catalog,
        fields: Fields,
        targets: Sequence[str],
        *,
        columns: Sequence[str] = (),
        allow_outside: bool = False,
        how: Reading = USUAL,
    ) -> None:
        self._how = how
        catalog.check_not_empty()
        catalog.check_targets(targets)
        datasets = catalog.datasets
        if fields is None and len(datasets) > 1:
            raise UsageError(
                "fields",
                found=f"a catalogue with several datasets, {list(datasets)}",
                expected="to know which to read",
                remedy=f'say for example fields={{"x": "{datasets[0]}"}}',
            )
        named = {"x": (datasets[0],)} if fields is None else _named(fields)
        for dataset in chain.from_iterable(named.values()):
            if dataset not in datasets:
                raise NotFoundError(
                    "fields", found=f"no dataset {dataset!r} in the catalogue", expected=f"one of {list(datasets)}"
                )
        self.fields = tuple(named)
        index = catalog.index
        self.ids: Sequence[str] = ColumnNames(index.samples)
        self._datasets = tuple(named.values())
        self._numbers = tuple(tuple(index.dataset(name) for name in names) for names in self._datasets)
        self._catalog = catalog
        self._allow_outside = allow_outside or catalog.allow_outside
        self._targets = tuple(targets)
        self._values = RowValues(catalog, columns)

    def sample(self, index: int) -> Sample:
        """Return one sample from its rows."""
        numbered = zip(self._datasets, self._numbers, strict=True)
        rows = [[self._row(index, *one) for one in zip(*each, strict=True)] for each in numbered]
        entries = [[self._catalog.entry_at(row) for row in own] for own in rows]
        locations = tuple(
            _stacked(
                [location_of(one, self._catalog.root, self._how, allow_outside=self._allow_outside) for one in own]
            )
            for own in entries
        )
        targets = tuple(entries[0][0].targets[name] for name in self._targets) if self._targets else None
        return Sample(self.ids[index], locations, targets, values=self._values.of(rows[0][0]))

    def where(self, condition: Condition) -> list[int]:
        """Return the indices of the samples for which a condition holds, on the row of their first field."""
        index = self._catalog.index
        rows = numbers(pc.indices_nonzero(condition.holds(self._catalog.whole)))
        rows = rows[index.dataset_of_row[rows] == self._numbers[0][0]]
        return [int(number) for number in np.unique(index.sample_of_row[rows])]

    def _row(self, index: int, dataset: str, number: int | None) -> int:
        """Return a sample's row of a dataset."""
        row = None if number is None else self._catalog.index.row(index, number)
        return self._catalog.row(self.ids[index], dataset) if row is None else row


class FileSamples:
    """Samples that are files: every field is a dataset, or several, of the same file."""

    def __init__(
        self,
        paths: Sequence[str],
        fields: Fields,
        targets: Sequence[str],
        *,
        axes: Axes,
        allow_outside: bool,
        how: Reading = USUAL,
    ) -> None:
        named = {"x": ("",)} if fields is None else _named(fields)
        by_field = axes if isinstance(axes, Mapping) else dict.fromkeys(named, axes)
        unknown = set(by_field) - set(named)
        if unknown:
            raise UsageError("axes", found=f"field {min(unknown)!r}", expected=f"one of {list(named)}")
        self.fields = tuple(named)
        self.targets_in_file = tuple(targets)
        by_id = dict(sorted(zip(ids_of(paths), paths, strict=True)))
        self.ids = tuple(by_id)
        self._paths = tuple(by_id.values())
        self._within, self._how = None if allow_outside else "", how
        self._datasets = tuple((names, by_field.get(field)) for field, names in named.items())

    def sample(self, index: int) -> Sample:
        """Return one sample: its file under each field's dataset name."""
        path = self._paths[index]
        locations = tuple(
            _stacked([self._location(path, name, axes) for name in names]) for names, axes in self._datasets
        )
        return Sample(self.ids[index], locations, None)

    def _location(self, path: str, name: str, axes: str | None) -> Location:
        return self._how.location(path, name, axes=axes, within=self._within)


def _named(fields: Mapping[str, str | Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Return the datasets of each field, whose channels it has."""
    return {field: (names,) if isinstance(names, str) else tuple(names) for field, names in fields.items()}


def _stacked(locations: Sequence[Location]) -> Location:
    """Return volumes as one, whose channels are those of all; raises DataError where samples lie apart in them."""
    first, *others = locations
    if any(other.window != first.window for other in others):
        raise DataError(
            str(first), found="datasets of which the sample is not the same window", expected="one window for all"
        )
    return replace(first, also=tuple(other.stored for other in others)) if others else first


def location_of(entry: Entry, root: Folder, how: Reading = PLAIN, *, allow_outside: bool = False) -> Location:
    """Return where the volume of a catalogue's row is, and its checksums; `root` is the catalogue's folder or its URL.

    What is opened there has to lie in that folder, unless `allow_outside`; see `Catalog`.
    """
    checksums = place_of(root, entry.checksums) if entry.checksums else None
    folder = "" if isinstance(root, str) else os.fspath(root)  # what lies below a URL was told by the names
    return Location(
        place_of(root, entry.path),
        entry.dataset,
        axes=entry.axes,
        shape=entry.shape if entry.window is None else None,
        dtype=entry.dtype,
        checksums=ChecksumSource(checksums, entry.summed_as, entry.dataset) if checksums else None,
        window=None if entry.window is None else Window(entry.window, _spatial(entry)),
        within=None if allow_outside else folder,
        level=how.level,
        packed=how.packed,
    )


def _spatial(entry: Entry) -> tuple[int, int, int]:
    """Return the extents (D, H, W) of a sample."""
    _, d, h, w = AxisOrder(entry.axes).to_volume(entry.shape, 1)
    return d, h, w


def list_samples(
    source: Source,
    *,
    fields: Fields,
    targets: Sequence[str],
    axes: Axes,
    columns: Sequence[str] = (),
    allow_outside: bool = False,
    how: Reading = USUAL,
) -> Samples:
    """Return the samples that `source` names; `how` says how their volumes are read.

    Raises
    ------
    NotFoundError
        A path that does not exist, a glob that matches nothing, an unknown dataset or target.
    UsageError
        An empty list, or fields or axes that the source contradicts.
    DataError
        A damaged catalogue, or targets that are not finite.
    """
    _check_fields(fields)
    named = named_objects(source)
    check_source(named)
    catalog = named if isinstance(named, Catalog) else catalog_at(named, allow_outside=allow_outside)
    if catalog is None:
        return FileSamples(paths_of(named), fields, targets, axes=axes, allow_outside=allow_outside, how=how)
    if axes is not None:
        raise UsageError("axes", found=f"{axes!r} with a catalogue", remedy="leave axes out: the catalogue has them")
    return CatalogSamples(catalog, fields, targets, columns=columns, allow_outside=allow_outside, how=how)


def _check_fields(fields: Any) -> None:
    """Refuse a list of names, and a mapping of none."""
    if fields is not None and (not isinstance(fields, Mapping) or not fields):
        found = "no field" if isinstance(fields, Mapping) else repr(fields)
        raise UsageError("fields", found=found, expected='a mapping of one name or more, such as {"x": "full"}')
    for key, names in (fields or {}).items():
        several = names if isinstance(names, Sequence) and not isinstance(names, bytes) else ()
        if not isinstance(names, str) and (not several or not all(isinstance(name, str) and name for name in several)):
            raise UsageError(
                f"fields[{key!r}]",
                found=repr(names),
                expected='the name of a dataset, or a list of them, such as ["vx", "vy", "vz"]',
            )
        if len(set(several)) < len(several) and not isinstance(names, str):
            raise UsageError(f"fields[{key!r}]", found=repr(names), expected="each dataset once")
