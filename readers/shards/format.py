"""ShardFormat: how a sample in a shard is recognised, listed and opened."""

from __future__ import annotations

import io
import json
import os
from contextlib import closing
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from voxload.errors import DataError, NotFoundError, UsageError
from voxload.files.limits import DOCUMENT, VALUES
from voxload.readers.axes import resolve_axes
from voxload.readers.faults import translated
from voxload.readers.flat.arrayfile import ArrayFileReader
from voxload.readers.flat.formats import npy_layout
from voxload.readers.generation import stamp_of
from voxload.readers.protocol import Location, Missing, Reader, Vector, as_vector
from voxload.readers.remote.store import RemoteStore
from voxload.readers.shards.media import ARRAY, is_volume, kind_of, medium_of
from voxload.readers.shards.members import HEAD_BYTES, Member, members_of, opened
from voxload.readers.shards.names import SampleName, parsed
from voxload.readers.shards.reader import MemberReader, StoredMember, content, read_member
from voxload.readers.store import is_url
from voxload.text import listed

_JSON = "json"
_NUMBERS = ("cls", "txt")
"""Members that are a text of numbers."""


class ShardFormat:
    """One sample of a tar archive in WebDataset's layout; its volumes are named by their extensions."""

    name = "tar shard"

    def claims(self, path: str) -> bool:
        """Tell whether `path` names a sample in an archive that is there."""
        name = parsed(path)
        if name is None:
            return False
        return _is_object(name.shard) if is_url(name.shard) else os.path.isfile(name.shard)  # noqa: PTH113 - as others

    def datasets(self, path: str) -> tuple[str, ...]:
        """Return the extensions of all pictures, clips and arrays."""
        return tuple(sorted(one for one in _members(_named(path)) if is_volume(one)))

    def open(self, location: Location, missing: Missing) -> Reader:  # noqa: ARG002 - all voxels are there
        """Open one member; without a name, the only volume there is."""
        name = _named(location.path)
        if location.checksums is not None:
            raise UsageError(str(location), found="checksums of a member of an archive", expected="none")
        # Taken before what is read: a reader of an archive that was written to since is opened anew.
        stamp = None if is_url(name.shard) else stamp_of(name.shard)
        with translated(str(location)), closing(opened(name.shard)) as archive:
            found = members_of(archive, name, until=location.dataset or None)
            extension = location.dataset or _only(name, found)
            if extension not in found:
                raise _no_member(name, extension, found)
            member, medium = found[extension], medium_of(extension, str(location))
            is_mapped = kind_of(extension) == ARRAY and not is_url(name.shard)
            data = archive.read(member.offset, min(member.size, HEAD_BYTES)) if is_mapped else content(archive, member)
        if is_mapped:
            return _array(location, name, member, data)
        return MemberReader(location, StoredMember(name.shard, member, stamp), data, medium)

    def read_vector(self, path: str, name: str) -> Vector:
        """Read numbers of a sample: a member ``cls``, ``txt`` or ``npy``, or a key of its ``json``.

        Raises NotFoundError where there is none, DataError where it holds no numbers.
        """
        sample = _named(path)
        found, subject = _members(sample), f"{path}:{name}"
        if name in found and kind_of(name) == ARRAY:
            with translated(subject):
                loaded = np.load(io.BytesIO(_document(sample, found[name], subject)), allow_pickle=False)
                return as_vector(subject, loaded)
        if name in found and kind_of(name) in _NUMBERS:
            return _parsed(_document(sample, found[name], subject).decode("utf-8", "replace").split(), subject)
        if _JSON in found:
            with translated(subject):
                values = json.loads(_document(sample, found[_JSON], subject))
            if isinstance(values, dict) and name in values:
                value = values[name]
                return _parsed(value if isinstance(value, list) else [value], subject)
        raise _no_member(sample, name, found)


@lru_cache(maxsize=2**10)
def _is_object(url: str) -> bool:
    """Tell whether there is an archive at a URL, and not a folder of that name; asked once for all of its samples."""
    return RemoteStore(url).size("") is not None


def _named(path: str) -> SampleName:
    name = parsed(path)
    if name is None:
        raise UsageError(path, found="no sample of an archive", expected="shard.tar/key")
    return name


def _members(name: SampleName) -> dict[str, Member]:
    with translated(str(name)), closing(opened(name.shard)) as archive:
        return members_of(archive, name)


def _only(name: SampleName, found: dict[str, Member]) -> str:
    volumes = sorted(one for one in found if is_volume(one))
    if len(volumes) != 1:
        raise UsageError(
            str(name),
            found=f"{len(volumes)} volumes, {listed(volumes)}",
            expected="the name of one",
            remedy='name it, such as fields={"x": "jpg"}',
        )
    return volumes[0]


def _no_member(name: SampleName, wanted: str, found: dict[str, Member]) -> NotFoundError:
    return NotFoundError(str(name), found=f"no member {wanted!r}", expected=f"one of {listed(sorted(found))}")


def _array(location: Location, name: SampleName, member: Member, data: bytes) -> ArrayFileReader:
    """Open an array where it lies, so that boxes of it are read as those of a file of its own."""
    with translated(str(location)):
        layout = npy_layout(io.BytesIO(data))
        if layout.offset + layout.nbytes > member.size:
            raise EOFError(f"{member.size} bytes, of {layout.offset + layout.nbytes}")
        order = resolve_axes(str(location), ndim=len(layout.shape), given=location.axes, declared=None, has_lead=True)
    place = replace(location, path=name.shard, dataset=member.name)
    layout = replace(layout, offset=member.offset + layout.offset)
    return ArrayFileReader(place, layout, order=order, format_name=ShardFormat.name)


def _document(name: SampleName, member: Member, subject: str) -> bytes:
    DOCUMENT.check(subject, member.size, "a member")
    return read_member(name.shard, member, subject)


def _parsed(values: list[Any], subject: str) -> Vector:
    VALUES.check(subject, len(values), "a vector")
    try:
        found = np.array([float(value) for value in values], np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(subject, found=str(error), expected="numbers") from error
    if not len(found):
        raise DataError(subject, found="nothing", expected="one number or more")
    return found
