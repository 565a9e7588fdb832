"""append: rows for a catalogue that others read, and append to, meanwhile; what readers see are whole generations.

Writers come one at a time, by a lock beside the catalogue. Each reads it, adds its rows and puts the new file into the
old one's place: who reads has the one or the other. The column ``generation`` says which append a row came by, so that
what a reader saw once can be had again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from voxload.catalog.columns import GENERATION
from voxload.catalog.merge import merge
from voxload.catalog.places import catalog_path
from voxload.catalog.rows import Rows, check_output, resolved
from voxload.errors import DataError, NotFoundError, StorageError, UsageError, VoxloadError
from voxload.files.atomic import remove_partials, replacing
from voxload.files.lock import exclusive
from voxload.files.regular import parse_json, read_text
from voxload.readers.store import is_url

PATIENCE = 600.0
"""Seconds to wait for other writers, each of which takes as long as it takes to write the catalogue."""
_FAILURES = "failures.json"


@dataclass(frozen=True, slots=True)
class Appended:
    """What an append did."""

    generation: int
    """Of the catalogue now; 0 of one that nothing was appended to."""
    added: int
    """Rows that are new."""
    rows: int
    """All rows."""


def append(path: str | os.PathLike[str], added: Sequence[Rows], *, patience: float = PATIENCE) -> Appended:
    """Add rows to a catalogue, or make it; rows that it has already change nothing.

    Parameters
    ----------
    path
        The catalogue, or its folder.
    added
        Rows of other catalogues; paths are rewritten. All their volumes are there, whole.
    patience
        Seconds to wait for others that write it.

    Raises
    ------
    UsageError
        When the catalogue would lose a column, or get one for some rows alone.
    NotFoundError
        When a volume is not there.
    DataError
        When rows say something else of a volume, or of a sample's targets, than there is.
    StorageError
        When another writer takes too long, or the folder takes no file; the catalogue is as it was.
    """
    place = catalog_path(path)
    check_output(place, overwrite=True)
    new = [_without_generation(rows) for rows in added]
    for rows in new:
        _check_there(rows)
    with exclusive(_lock(place), patience=patience):
        known = Rows.read(place, allow_outside=True) if place.exists() else None
        before = {} if known is None else _generations(known)
        old = [] if known is None else [_without_generation(known)]
        last = max(before.values(), default=0)
        if not old and not new:
            raise UsageError("append", found="no catalogue", expected="one or more")
        for rows in new:
            _check_columns(rows, (old or new)[0])
        found = merge([*old, *new], place.parent)
        keys = list(zip(found.samples, found.strings("dataset"), strict=True))
        count = sum(key not in before for key in keys)
        if not count:
            return Appended(last, 0, len(keys))
        numbers = [before.get(key, last + 1) for key in keys]
        table = found.table.append_column(GENERATION, pa.array(numbers, pa.int64()))
        _write(place, table)
        _note(place, {}, gone={sample for sample, _ in keys})
    return Appended(last + 1, count, len(keys))


def note_failures(
    path: str | os.PathLike[str], failures: Mapping[str, str], *, patience: float = PATIENCE
) -> dict[str, str]:
    """Note samples that could not be made, with what is to be said of them; return all that are noted.

    One that is appended later is noted no more. Raises StorageError as `append` does.
    """
    place = catalog_path(path)
    check_output(place, overwrite=True)
    with exclusive(_lock(place), patience=patience):
        there = set(Rows.read(place, allow_outside=True).samples) if place.exists() else set()
        return _note(place, failures, gone=there)


def read_failures(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the samples of a growing catalogue that could not be made, and what is said of them.

    Raises DataError where the file is damaged.
    """
    file = catalog_path(path).with_name(_FAILURES)
    try:
        found = parse_json(read_text(file))
    except FileNotFoundError:
        return {}
    except VoxloadError:  # a pipe, or more than a document may be
        raise
    except (ValueError, UnicodeDecodeError) as error:
        raise DataError(
            f"{file}", found=str(error), expected="JSON of samples and words", remedy="remove it"
        ) from error
    if not isinstance(found, dict) or not all(isinstance(words, str) for words in found.values()):
        raise DataError(f"{file}", found="something else", expected="JSON of samples and words", remedy="remove it")
    return found


def _note(place: Path, failures: Mapping[str, str], *, gone: set[str]) -> dict[str, str]:
    """Write failures beside a catalogue whose lock is held; return all."""
    before = read_failures(place)
    after = {sample: words for sample, words in sorted((before | dict(failures)).items()) if sample not in gone}
    if after != before:
        file = place.with_name(_FAILURES)
        try:
            with replacing(file) as temporary:
                temporary.write_text(json.dumps(after, indent=1), encoding="utf-8")
        except OSError as error:
            raise StorageError(f"{file}", found=str(error).splitlines()[0], remedy="make room") from error
    return after


def _lock(place: Path) -> Path:
    return place.with_name(f".{place.name}.append.lock")


def _write(place: Path, table: pa.Table) -> None:
    remove_partials(place)  # of writers that were killed: the lock is held
    try:
        with replacing(place) as temporary:
            pq.write_table(table, temporary, write_page_checksum=True)
    except OSError as error:
        raise StorageError(f"catalogue {place}", found=str(error).splitlines()[0], remedy="it is as it was") from error


def _generations(rows: Rows) -> dict[tuple[str, str], int]:
    """Return the generation of each row by its sample and dataset."""
    keys = zip(rows.samples, rows.strings("dataset"), strict=True)
    if GENERATION not in rows.table.column_names:
        return dict.fromkeys(keys, 0)
    return dict(zip(keys, rows.table.column(GENERATION).to_pylist(), strict=True))


def _without_generation(rows: Rows) -> Rows:
    if GENERATION not in rows.table.column_names:
        return rows
    return rows.with_table(rows.table.drop_columns([GENERATION]))


def _check_there(rows: Rows) -> None:
    """Refuse rows whose volumes are not there: readers would see a sample that is none."""
    for path, sample in zip(resolved(rows, "path"), rows.samples, strict=True):
        if not is_url(path) and not os.path.exists(path):  # noqa: PTH110 - of many rows
            raise NotFoundError(
                f"volume {path} of sample {sample!r}", found="nothing", remedy="append samples when they are complete"
            )


def _check_columns(rows: Rows, known: Rows) -> None:
    """Refuse rows that have other columns than the catalogue: some would be lost without a word."""
    own, theirs = set(rows.table.column_names), set(known.table.column_names)
    for name in sorted(own ^ theirs):
        has, lacks = (rows, known) if name in own else (known, rows)
        raise UsageError(
            f"column {name!r}",
            found=f"in {has.name or 'one'}, and not in {lacks.name or 'another'}",
            expected="the same columns in all that is appended",
            remedy="leave it out, or give it to all",
        )
