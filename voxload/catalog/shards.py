"""Catalogues of shards: the pictures, clips and arrays in tar archives of WebDataset's layout, listed once.

A row names a sample by its place in its archive: who reads it asks for that range and reads no header but its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

from voxload.catalog.table import Catalog, Entry
from voxload.errors import DataError, UsageError
from voxload.readers.shards import (
    Header,
    Member,
    ShardFormat,
    ShardSample,
    is_shard,
    is_volume,
    member_header,
    opened,
    samples_of,
    shown_name,
)

_CLASS = "cls"
"""What WebDataset calls the number of a sample's class."""
_THREADS = 8
"""Archives that are listed at once: threads wait for storages, and decode nothing."""


def list_shards(
    shards: Sequence[Path],
    folder: Path,
    *,
    members: Sequence[str] = (),
    targets: Sequence[str] | None = None,
    tell: Callable[[Path], object] = lambda _: None,
) -> Catalog:
    """Return a catalogue, of this folder, of all volumes in some archives; reads headers, and members for targets.

    Parameters
    ----------
    shards
        The archives.
    folder
        That the paths of the catalogue count from.
    members
        Extensions of the volumes; all pictures, clips and arrays by default.
    targets
        What samples are labelled with: members ``cls``, ``txt`` or ``npy`` of one number, or keys of their ``json``.
        None takes ``cls`` where the first sample has one.
    tell
        Called with each archive that is done.

    Raises
    ------
    UsageError
        For no archives, and those of other names than ``*.tar``.
    DataError
        Where an archive is damaged, a member is no volume, or a target no number.
    NotFoundError
        Where a sample lacks a member or a target that is named.
    """
    odd = next((shard for shard in shards if not is_shard(os.fspath(shard))), None)
    if odd is not None or not shards:
        raise UsageError("shards", found=f"{odd}" if odd else "none", expected="files that end in .tar")
    if targets is None:
        first = next(samples_of(os.fspath(shards[0])), None)
        targets = (_CLASS,) if first is not None and _CLASS in first.members else ()
    listed = partial(_entries, folder=folder, members=tuple(members), targets=tuple(targets))
    found: list[Entry] = []
    with ThreadPoolExecutor(_THREADS) as pool:
        for shard, entries in zip(shards, pool.map(listed, shards), strict=True):
            found.extend(entries)
            tell(shard)
    return Catalog.from_entries(found, folder, allow_outside=True)  # the caller named them


def _entries(shard: Path, folder: Path, members: tuple[str, ...], targets: tuple[str, ...]) -> list[Entry]:
    """Return the rows of an archive."""
    path = os.fspath(shard)
    found = []
    with closing(opened(path)) as archive:
        for sample in samples_of(path):
            values = _targets(sample, targets)
            for extension, member in _volumes(sample, members):
                header = member_header(archive, member, extension, subject=f"{sample.name}:{extension}")
                found.append(_entry(sample, extension, member, header, folder=folder, targets=values))
    return found


def _volumes(sample: ShardSample, members: tuple[str, ...]) -> Iterator[tuple[str, Member]]:
    wanted = members or tuple(sorted(one for one in sample.members if is_volume(one)))
    for extension in wanted:
        if extension not in sample.members:
            raise DataError(
                str(sample.name),
                found=f"no member {extension!r}",
                expected=f"one of {sorted(sample.members)}",
                remedy="name members that all samples have",
            )
        yield extension, sample.members[extension]


def _targets(sample: ShardSample, names: tuple[str, ...]) -> dict[str, float]:
    found = {}
    for name in names:
        values = ShardFormat().read_vector(str(sample.name), name)
        if len(values) != 1:
            raise DataError(f"{sample.name}:{name}", found=f"{len(values)} numbers", expected="one")
        found[name] = float(values[0])
    return found


def _entry(
    sample: ShardSample, extension: str, member: Member, header: Header, *, folder: Path, targets: dict[str, float]
) -> Entry:
    subject = f"{sample.name}:{extension}"
    if not header.axes:
        raise UsageError(
            subject,
            found=f"an array of {len(header.shape)} axes",
            expected="two or three",
            remedy="name the archives themselves, and say axes=",
        )
    path = os.path.relpath(str(sample.name), folder)
    name = shown_name(os.path.relpath(str(sample.name), Path(sample.name.shard).parent))
    return Entry(name, path, extension, header.shape, header.dtype.str, header.axes, member.size, targets=targets)
