"""MemberReader: boxes of a picture or a clip in a shard, decoded by the thread that reads them."""

from __future__ import annotations

import threading
from contextlib import closing, suppress
from dataclasses import dataclass
from math import prod
from typing import Any

from voxload.errors import DataError
from voxload.geometry import Box
from voxload.readers.axes import AxisOrder, resolve_axes
from voxload.readers.faults import translated
from voxload.readers.generation import Generation, file_generation
from voxload.readers.protocol import (
    Location,
    ReadCost,
    Volume,
    VolumeInfo,
    check_box,
    check_request,
    check_volume,
    closed,
    copy_cast,
)
from voxload.readers.shards.media import Header, Medium, medium_of
from voxload.readers.shards.members import HEAD_BYTES, Archive, Member, members, opened
from voxload.readers.storage.stamp import Stamp


@dataclass(frozen=True, slots=True)
class StoredMember:
    """Where a member lies."""

    shard: str
    """The archive."""
    member: Member
    stamp: Stamp | None
    """Of the archive before it was looked at; None behind a URL."""


class MemberReader:
    """Reads boxes of a member that is decoded whole, or up to the last frame that is wanted; see the Reader contract.

    Parameters
    ----------
    location
        Sample and extension.
    stored
        Where the member lies.
    data
        What it holds: used for the first read, and let go of then.
    medium
        How it is decoded.
    """

    def __init__(self, location: Location, stored: StoredMember, data: bytes, medium: Medium) -> None:
        self._stored, self._medium = stored, medium
        self._subject = str(location)
        head = medium.header(data, self._subject)
        self._first: tuple[bytes, Any] | None = data, head.parsed
        self._lock = threading.Lock()
        self._is_closed = False
        self._shape = head.shape
        self._order: AxisOrder = resolve_axes(
            self._subject, ndim=len(head.shape), given=location.axes, declared=head.axes or None, has_lead=True
        )
        samples, steps, _ = self._order.lead(head.shape)
        self._info = VolumeInfo(
            location=location,
            format="tar shard",
            axes=self._order.axes,
            shape=(shape := self._order.to_volume(head.shape, 1)),
            dtype=head.dtype,
            chunks=shape,  # it is decoded whole
            shards=None,
            codecs=(head.codec,),
            samples=samples,
            steps=steps,
            route=head.codec,
        )
        check_volume(self._info)

    @property
    def held_bytes(self) -> int:
        """About as many bytes as this holds."""
        first = self._first
        return 1024 + (0 if first is None else len(first[0]))

    def describe(self) -> VolumeInfo:
        """Return what is known of the volume."""
        return self._info

    def cost(self, box: Box) -> ReadCost:
        """Return the bytes of the member, which is read whole, and of what is decoded of it."""
        check_box(self._info, box)
        if not box.size:
            return ReadCost()
        return ReadCost(1, self._stored.member.size, prod(self._shape) * self._info.dtype.itemsize)

    def read_into(self, box: Box, out: Volume) -> None:
        """Read `box` into `out`."""
        check_request(self._info, box, out)
        if self._is_closed:
            raise closed(self._info)
        stored = self._order.stored_box(box, self._info.lead)
        if not stored.size:
            return
        view = self._order.stored_view(out, box, self._info.lead)
        frames = range(stored.start[0], stored.stop[0])
        data, parsed = self._data()
        found = self._medium.decode(data, self._subject, frames, parsed)
        whole = len(found) == self._shape[0]
        slices = stored.slices if whole else (slice(None), *stored.slices[1:])
        copy_cast(view, found[slices])

    def generation(self, box: Box) -> Generation | None:  # noqa: ARG002 - of an archive there is one
        """See Dated."""
        return file_generation(self._stored.shard)

    def is_outdated(self) -> bool:
        """See Dated."""
        return self._stored.stamp is not None and self._stored.stamp.is_outdated

    def close(self) -> None:
        """Let go of what was read."""
        self._is_closed, self._first = True, None

    def _data(self) -> tuple[bytes, Any]:
        """Return what the member holds: what was read when it was opened, once, and parsed; or what is there now."""
        with self._lock:
            first, self._first = self._first, None
        stored = self._stored
        return (read_member(stored.shard, stored.member, self._subject), None) if first is None else first


def read_member(shard: str, member: Member, subject: str) -> bytes:
    """Return what a member holds; raises DataError where another one, or none, is at its place now."""
    with translated(subject), closing(opened(shard)) as archive:
        if next(members(archive, subject, start=member.at), None) != member:
            raise DataError(
                subject,
                found=f"another member, or none, at byte {member.at}",
                expected=f"{member.name!r} of {member.size} bytes",
                remedy="the archive was written anew: begin again, and list it again if a catalogue names it",
            )
        return content(archive, member)


def member_header(archive: Archive, member: Member, extension: str, *, subject: str) -> Header:
    """Return what a member says of itself, of its first bytes where they are enough; decodes nothing.

    Raises UsageError where it is no volume, DataError where it is damaged.
    """
    medium = medium_of(extension, subject)
    with translated(subject):
        if medium.is_brief:
            with suppress(DataError):  # a header may be longer
                return medium.header(archive.read(member.offset, min(member.size, HEAD_BYTES)), subject)
        return medium.header(content(archive, member), subject)


def content(archive: Archive, member: Member) -> bytes:
    """Return what a member holds; raises EOFError where the archive ends before."""
    data = archive.read(member.offset, member.size)
    if len(data) != member.size:
        raise EOFError(f"{len(data)} of {member.size} bytes")
    return data
