"""Catalogue: the complete volumes in a folder, as rows of its table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from voxload.catalog.places import CATALOG_NAME
from voxload.catalog.statistics import VolumeSummary
from voxload.catalog.table import Catalog, Entry
from voxload.convert.manifest import AXES, Manifest, Member, read_manifest
from voxload.convert.options import StoredFormat
from voxload.convert.write.writer import writing
from voxload.errors import DataError, NotFoundError, UsageError
from voxload.files.atomic import remove_partials

Complete = tuple[Path, Manifest]
"""A complete volume: its final path and its manifest."""
_SUFFIXES = frozenset(stored.suffix for stored in StoredFormat)


def complete_volumes(folder: Path) -> list[Complete]:
    """Return every complete volume in `folder`, and in the folders that many are spread over, sorted by path."""
    return list(_complete(folder, is_top=True))


def _complete(folder: Path, *, is_top: bool) -> Iterator[Complete]:
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.suffix in _SUFFIXES:
            manifest = _own_manifest(path)
            if manifest is not None:
                yield path, manifest
        elif is_top and path.is_dir():
            yield from _complete(path, is_top=False)


def _own_manifest(path: Path) -> Manifest | None:
    """Return the manifest of a volume, None of what another version or another tool made."""
    try:
        return read_manifest(path)
    except DataError:
        return None


def write_catalog(folder: Path, complete: Sequence[Complete], *, summed: Sequence[Complete], checksums: str) -> None:
    """Write the catalogue of complete volumes; those in `summed` have checksums, in the file of that name.

    Nobody else may write it: the caller holds the folder's lock.
    """
    catalog = _catalog(folder, complete, summed=summed, checksums=checksums)
    with writing(folder / CATALOG_NAME):
        remove_partials(folder / CATALOG_NAME)
        catalog.write(folder / CATALOG_NAME)


def is_catalogued(folder: Path, complete: Sequence[Complete], *, summed: Sequence[Complete], checksums: str) -> bool:
    """Tell whether the folder's catalogue is the one that `write_catalog` would write; a damaged one is not."""
    try:
        there = Catalog.read(folder / CATALOG_NAME).whole
    except (DataError, UsageError, NotFoundError):
        return False
    wanted = _catalog(folder, complete, summed=summed, checksums=checksums).whole
    names = wanted.column_names
    # As text: a target that is no number equals itself, and lists have other names inside once they were stored.
    return set(names) <= set(there.column_names) and repr(there.select(names).to_pylist()) == repr(wanted.to_pylist())


def _catalog(folder: Path, complete: Sequence[Complete], *, summed: Sequence[Complete], checksums: str) -> Catalog:
    with_checksums = {path for path, _ in summed}
    entries = [
        entry
        for path, manifest in complete
        for entry in volume_entries(path, manifest, folder, checksums=checksums if path in with_checksums else "")
    ]
    return Catalog.from_entries(entries, folder)


def volume_entries(path: Path, manifest: Manifest, folder: Path, *, checksums: str = "") -> list[Entry]:
    """Return the rows of one volume's samples."""
    entries = []
    for member, result in zip(manifest.members, manifest.results, strict=True):
        is_whole = member.shape == manifest.shape[1:]
        part = manifest.part_of(member)
        entries.append(
            Entry(
                sample=member.sample,
                path=path.relative_to(folder).as_posix(),
                dataset=manifest.dataset,
                shape=(manifest.shape[0], *member.shape),
                dtype=manifest.dtype,
                axes=AXES,
                stored_bytes=manifest.stored_bytes if is_whole else result.stored_bytes,
                targets=member.targets,
                checksums=checksums,
                window=None if is_whole else member.start,
                universe="" if member.universe == member.sample else member.universe,
                origin=member.origin,
                spacing=part.spacing,
                affine=part.affine and _moved(part.affine, member.origin or (0, 0, 0)),
                coordinates=_along(part.coordinates, member),
                statistics=VolumeSummary.of(result.statistics),
            )
        )
    return entries


def _along(coordinates: Mapping[str, tuple[float, ...]], member: Member) -> dict[str, tuple[float, ...]]:
    """Return the coordinates of a sample, which may be a part of the cube that they are of."""
    found = {}
    for axis, first, extent in zip("DHW", member.origin or (0, 0, 0), member.shape, strict=True):
        if axis in coordinates:
            found[axis] = coordinates[axis][first : first + extent]
    return found


def _moved(affine: Sequence[float], origin: Sequence[int]) -> tuple[float, ...]:
    """Return the map of a sample whose first voxel (d, h, w) is at `origin` of the cube that `affine` is of."""
    matrix = np.reshape(affine, (4, 4)).astype(np.float64)
    matrix[:, 3] = matrix @ [*origin, 1]
    return tuple(matrix.ravel().tolist())
