"""Members: headers of an archive read one behind the other, from any place on, without what lies between them."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from voxload.errors import DataError, NotFoundError
from voxload.files.regular import open_regular
from voxload.readers.faults import translated
from voxload.readers.remote.ranges import ObjectStamp, RemoteBytes
from voxload.readers.remote.store import RemoteStore
from voxload.readers.shards.names import SampleName, split_member
from voxload.readers.store import is_url

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BLOCK = tarfile.BLOCKSIZE
_NOTHING = bytes(_BLOCK)
"""Two such blocks end an archive; one does as well."""
HEAD_BYTES = 2**16
"""Read at once with a header: a small sample is in it, whole."""


@dataclass(frozen=True, slots=True)
class Member:
    """A file in an archive."""

    name: str
    """As the archive has it."""
    at: int
    """Where its header begins."""
    offset: int
    """First byte of what it holds."""
    size: int
    """Bytes of it."""


class _Source(Protocol):
    """Where the bytes of an archive are."""

    size: int

    def read(self, offset: int, length: int) -> bytes:
        """Return so many bytes; fewer where the archive ends before."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


class Archive:
    """Bytes of an archive, read in pieces of which the last one is kept; used by one thread."""

    def __init__(self, source: _Source) -> None:
        self._source, self.size = source, source.size
        self._piece, self._begin = b"", 0

    def read(self, offset: int, length: int) -> bytes:
        """Return so many bytes; fewer where the archive ends before."""
        place = offset - self._begin
        if not 0 <= place <= len(self._piece) - min(length, max(0, self.size - offset)):
            self._piece, self._begin, place = self._source.read(offset, max(length, HEAD_BYTES)), offset, 0
        return self._piece[place : place + length]

    def close(self) -> None:
        """Let go of it."""
        self._source.close()


class _LocalArchive:
    def __init__(self, path: str) -> None:
        self._file = open_regular(path, buffering=0)
        self.size = os.fstat(self._file.fileno()).st_size

    def read(self, offset: int, length: int) -> bytes:
        """See Archive."""
        found = bytearray()
        while len(found) < length and (part := os.pread(self._file.fileno(), length - len(found), offset + len(found))):
            found += part
        return bytes(found)

    def close(self) -> None:
        """See Archive."""
        self._file.close()


class _RemoteArchive:
    """All reads are of the version that was there first."""

    def __init__(self, url: str) -> None:
        store = RemoteStore(url)
        facts = store.facts("")
        if facts is None:
            raise NotFoundError(url, found="no such object", remedy="check the URL")
        self.size = facts.size
        self._object = RemoteBytes(store, ObjectStamp(url, facts.size, facts.version))

    def read(self, offset: int, length: int) -> bytes:
        """See Archive."""
        wanted = min(length, self.size - offset)
        return self._object.read(offset, wanted).tobytes() if wanted > 0 else b""

    def close(self) -> None:
        """See Archive."""


def opened(shard: str) -> Archive:
    """Open an archive, a file or behind a URL."""
    with translated(shard):
        return Archive(_RemoteArchive(shard) if is_url(shard) else _LocalArchive(shard))


class _View(io.RawIOBase):
    """An archive from a place on, as a file for tarfile."""

    def __init__(self, archive: Archive, start: int) -> None:
        self._archive, self._start, self._at = archive, start, 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the place of the next read."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._archive.size - self._start}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        """Return the place of the next read."""
        return self._at

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill a buffer."""
        view = memoryview(buffer).cast("B")
        part = self._archive.read(self._start + self._at, len(view))
        view[: len(part)] = part
        self._at += len(part)
        return len(part)


def members(archive: Archive, subject: str, *, start: int = 0) -> Iterator[Member]:
    """Yield the files of an archive, from the header at `start` on, in their order; folders are left out.

    Raises DataError at what is no header, at a member that goes beyond the end, and at links and sparse files, which
    hold nothing where they stand.
    """
    at = start
    with translated(subject):
        while (found := _header(archive, at, subject)) is not None:
            at = found.offset_data + -(-found.size // _BLOCK) * _BLOCK
            if found.isdir():
                continue
            if not found.isreg() or found.issparse():
                raise DataError(
                    f"{subject}, member {found.name!r}",
                    found="a link, a sparse file or a device",
                    expected="plain files",
                    remedy="write the archive anew",
                )
            if found.offset_data + found.size > archive.size:
                raise DataError(
                    f"{subject}, member {found.name!r}",
                    found=f"{archive.size} bytes of the archive",
                    expected=f"{found.offset_data + found.size} or more",
                    remedy="copy it again: it is incomplete",
                )
            yield Member(found.name, found.offset, found.offset_data, found.size)


def _header(archive: Archive, at: int, subject: str) -> tarfile.TarInfo | None:
    """Return the header at a place, with what belongs to it; None at the end of the archive."""
    block = archive.read(at, _BLOCK)
    if block == _NOTHING:
        return None
    if not block:  # as a copy that was broken off between two members
        raise DataError(
            subject, found=f"{archive.size} bytes, and no end of the archive", remedy="copy it again: it is incomplete"
        )
    plain = _plain(block, at)
    if plain is not None:
        return plain
    try:
        found = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        if found.type not in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE):  # long names, pax headers, links
            with tarfile.open(fileobj=_View(archive, at), mode="r:") as headers:
                special = headers.next()
            if special is None:
                return None
            special.offset, special.offset_data = at + special.offset, at + special.offset_data
            return special
    except tarfile.TarError as error:
        raise DataError(
            f"{subject}, byte {at}",
            found=f"no header of a member: {error}",
            expected="a plain tar archive",
            remedy="unpack one that is compressed; copy one that is damaged again",
        ) from error
    found.offset, found.offset_data = at, at + _BLOCK
    return found


def _plain(block: bytes, at: int) -> tarfile.TarInfo | None:
    """Return the header of a file with a short name, as nearly all are, in a tenth of tarfile's time; None of others.

    Source: POSIX.1-2008, pax, "ustar Interchange Format".
    """
    if len(block) < _BLOCK or block[156] not in b"0\0" or block[257:262] != b"ustar" or block[345]:
        return None
    size, summed = block[124:136].rstrip(b" \0"), block[148:156].rstrip(b" \0")
    name = block[:100].partition(b"\0")[0]
    if not (size.isdigit() and summed.isdigit()) or not name or name.endswith(b"/"):
        return None
    try:
        if sum(block) - sum(block[148:156]) + 8 * 32 != int(summed, 8):
            return None
        found = tarfile.TarInfo(name.decode("utf-8", "surrogateescape"))
        found.size = int(size, 8)
    except ValueError:
        return None
    found.offset, found.offset_data = at, at + _BLOCK
    return found


def members_of(archive: Archive, name: SampleName, *, until: str | None = None) -> dict[str, Member]:
    """Return the members of a sample by their extensions; no further ones than `until`, where that is named.

    Raises NotFoundError where there is no such sample, DataError where another one is at its place.
    """
    found: dict[str, Member] = {}
    for member in members(archive, str(name), start=name.at or 0):
        key, extension = split_member(member.name)
        if key == name.key:
            found[extension] = member
            if extension == until:
                break
        elif found or name.at is not None:  # the members of a sample are one behind the other
            break
    if found:
        return found
    if name.at is not None:
        raise DataError(
            str(name),
            found="another sample, or none, at that place",
            expected=f"{name.key!r}",
            remedy="the archive was written anew since it was listed: list it again",
        )
    raise NotFoundError(name.shard, found=f"no sample {name.key!r}", remedy="check the name")
