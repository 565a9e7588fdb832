"""verify: every volume of a catalogue judged, and checksums recorded for those that have none."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from voxload.catalog.checksums import checksums_name, recording
from voxload.catalog.places import Folder, catalog_path, place_of
from voxload.catalog.table import Catalog, Entry
from voxload.convert.manifest import read_manifest
from voxload.convert.write.lock import locked
from voxload.data.lists.samples import location_of
from voxload.errors import DataError, StorageError
from voxload.files.atomic import remove, replacing
from voxload.files.parquet import read_table
from voxload.readers.chunks.checksumfile import ChecksumFile
from voxload.readers.chunks.checksums import ChecksumRow, Checksums
from voxload.readers.protocol import Missing
from voxload.readers.store import is_url
from voxload.verification.volume import VerifyProgress, VerifyReport, VolumeCheck

OnProgress = Callable[[VerifyProgress], None]
"""Told how far it is, in the calling thread."""


def verify(
    catalog: str | os.PathLike[str],
    *,
    write: bool = False,
    missing: str | Missing = Missing.ERROR,
    progress: OnProgress | None = None,
    allow_outside: bool = False,
) -> VerifyReport:
    """Read every stored chunk of every volume and say which are not what they should be.

    Chunks with checksums are compared with them. Those without are decoded, which finds less; the report counts
    both. Nothing stops at the first fault. Memory is that of a read: for each thread a chunk as stored and as decoded.

    Parameters
    ----------
    catalog
        The catalogue, or the folder that holds it.
    write
        Record the checksums of volumes that have none and no fault, and name them in the catalogue. Checksums that
        are there are never replaced: that would turn damage into truth.
    missing
        Whether chunks that were never written are faults; where there are checksums, these say it.
    progress
        Told how far it is.
    allow_outside
        Whether the catalogue's paths may lead out of its folder; see `Catalog`.

    Raises
    ------
    NotFoundError
        When there is no such catalogue.
    UsageError
        With `write`, when another process works in the folder.
    DataError
        When the catalogue is damaged; with `write`, when the file of checksums that would be added to is.
    StorageError
        With `write`, when the folder takes no file.
    """
    started = time.perf_counter()
    path = catalog_path(catalog)
    policy = Missing.parse(missing)
    with locked(path.parent) if write and path.is_file() else nullcontext():
        run = _Run(Catalog.read(path, allow_outside=allow_outside), VerifyReport(path), policy, progress)
        if write and any(not entry.checksums for entry in run.entries):
            _record(run, path)
        else:
            for entry in run.entries:
                run.check(entry)
    run.report.seconds = time.perf_counter() - started
    return run.report


class _Run:
    """One verification under way; one thread."""

    def __init__(self, catalog: Catalog, report: VerifyReport, missing: Missing, progress: OnProgress | None) -> None:
        self.rows = [catalog.entry(*key) for key in catalog.keys]
        self.entries = _stored_volumes(self.rows)
        self.report = report
        self.root = catalog.root
        self._allow_outside = catalog.allow_outside
        self._missing = missing
        self._progress = progress
        self._total = sum(entry.stored_bytes for entry in self.entries)
        self._before = 0

    def check(self, entry: Entry) -> Checksums | None:
        """Judge one volume; return its checksums if it had none and has no fault."""

        def show(done: int) -> None:
            if self._progress is not None:
                # By the catalogue's sizes: what is read besides chunks, such as indices, is not counted.
                self._progress(VerifyProgress(entry.sample, self._before + min(done, entry.stored_bytes), self._total))

        location = location_of(entry, self.root, allow_outside=self._allow_outside).stored
        found = VolumeCheck(entry, location, report=self.report, on_bytes=show).run(self._missing)
        show(entry.stored_bytes)
        self._before += entry.stored_bytes
        return found


def _stored_volumes(rows: Sequence[Entry]) -> list[Entry]:
    """Return one row for each stored volume, with the bytes of all samples that share it."""
    found: dict[tuple[str, str], Entry] = {}
    for entry in rows:
        before = found.get((entry.volume, entry.dataset))
        size = entry.stored_bytes + (before.stored_bytes if before else 0)
        found[entry.volume, entry.dataset] = replace(before or entry, stored_bytes=size)
    return list(found.values())


def _record(run: _Run, path: Path) -> None:
    """Judge every volume, and write the checksums of those that have none, and then the catalogue that names them."""
    name = checksums_name(path)
    target = path.with_name(name)
    kept = ChecksumFile(os.fspath(target)) if any(entry.checksums == name for entry in run.entries) else None
    fresh: set[tuple[str, str]] = set()
    with recording(target) as add:
        for entry in sorted(run.entries, key=lambda entry: (entry.volume, entry.dataset)):
            found = run.check(entry)
            if found is not None:
                add(ChecksumRow(entry.volume, entry.dataset, _origin(entry, run.root), found))
                fresh.add((entry.volume, entry.dataset))
            elif kept is not None and entry.checksums == name:
                row = kept.find(entry.volume, entry.dataset)
                if row is not None:
                    add(row)
    if fresh:
        _name_checksums(path, [name if (row.volume, row.dataset) in fresh else row.checksums for row in run.rows])
    elif kept is None:
        remove(target)
    run.report.recorded = len(fresh)


def _origin(entry: Entry, root: Folder) -> str:
    """Return what a converted sample was made of, by which a later conversion knows its checksums again."""
    place = place_of(root, entry.path)
    manifest = None if is_url(place) else read_manifest(Path(place))
    return manifest.origin if manifest is not None and manifest.dataset == entry.dataset else ""


def _name_checksums(path: Path, names: list[str]) -> None:
    """Set the column `checksums` of a catalogue, row by row, and leave everything else that is in it."""
    try:
        table = read_table(path)
        column = pa.array(names, pa.string())
        if "checksums" in table.column_names:
            table = table.set_column(table.column_names.index("checksums"), "checksums", column)
        else:
            table = table.append_column("checksums", column)
        with replacing(path) as temporary:
            pq.write_table(table, temporary, write_page_checksum=True)
    except pa.ArrowException as error:
        raise DataError(f"catalogue {path}", found=str(error).splitlines()[0]) from error
    except OSError as error:
        raise StorageError(f"catalogue {path}", found=str(error), remedy="the catalogue is as it was") from error
