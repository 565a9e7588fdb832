"""Requests: several boxes of one volume that are read as one, such as a block with its halo."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol, cast, runtime_checkable

import numpy as np

from voxload.geometry import Boundary, Box, pieces
from voxload.readers.axes import AxisOrder
from voxload.readers.pasting.pasteplan import Wanted, fits
from voxload.readers.protocol import ReadCost, Reader, Volume, VolumeInfo, check_out, check_request


@dataclass(frozen=True, slots=True)
class Request:
    """A box and the array that it fills; see ``Reader.read_into``."""

    box: Box
    """Inside the volume; spatial, or with a range of channels in front."""
    out: Volume
    """Shape ``(C, d, h, w)``."""


@runtime_checkable
class ManyReader(Reader, Protocol):
    """A reader for which many boxes at once cost less than one after the other."""

    def read_many(self, requests: Sequence[Request]) -> None:
        """Fill the array of each request, by the rules of `read_into`; when it raises, all of them are undefined."""
        ...


@cache
def reads_many(kind: type) -> bool:
    """Tell whether readers of a class are `ManyReader`; asked once, for to look that up takes as long as a read."""
    return issubclass(kind, ManyReader)


def read_many(reader: Reader, requests: Sequence[Request]) -> None:
    """Fill the array of each request, at once where `reader` can.

    Raises what `reader` raises; all arrays are then undefined. Thread-safe as the reader is.
    """
    if reads_many(type(reader)):
        cast("ManyReader", reader).read_many(requests)
        return
    for request in requests:
        reader.read_into(request.box, request.out)


def check_requests(info: VolumeInfo, requests: Sequence[Request]) -> None:
    """Refuse boxes outside the volume, and arrays that do not fit them; every `read_many` calls this first."""
    for request in requests:
        check_request(info, request.box, request.out)


def read_wanted(
    info: VolumeInfo, order: AxisOrder, requests: Sequence[Request], read: Callable[[list[Wanted]], None]
) -> None:
    """Let `read` fill requests in stored axis order, and copy what it could not fill in place."""
    wanted, copies = list[Wanted](), list[tuple[Volume, Volume]]()
    for request in requests:
        if not request.box.size:
            continue
        view = order.stored_view(request.out, request.box, info.lead)
        if not fits(view):
            copies.append((view, np.empty(view.shape, view.dtype)))
            view = copies[-1][1]
        wanted.append(Wanted(order.stored_box(request.box, info.lead), view))
    # A read has one type: a kernel casts to it or does not.
    for dtype in {one.view.dtype for one in wanted}:
        read([one for one in wanted if one.view.dtype == dtype])
    for view, copied in copies:
        np.copyto(view, copied)


def wanted_in_place(info: VolumeInfo, order: AxisOrder, requests: Sequence[Request]) -> list[Wanted] | None:
    """Return what requests want in stored axis order; None where not all can be filled in place by one kernel."""
    lead = info.lead
    views = [order.stored_view(one.out, one.box, lead) for one in requests]
    if not all(fits(view) for view in views) or len({view.dtype for view in views}) != 1:
        return None
    return [Wanted(order.stored_box(one.box, lead), view) for one, view in zip(requests, views, strict=True)]


def read_block(reader: Reader, box: Box, out: Volume, *, boundary: str | Boundary) -> None:
    """Fill `out` with the voxels of `box`, which may reach outside the volume.

    Parameters
    ----------
    reader
        The volume's reader.
    box
        Spatial, in global indices; negative ones and ones beyond the extent follow `boundary`.
    out
        Shape ``(C, *box.shape)``, the reader's native dtype.
    boundary
        What lies outside: zeros, or the volume again.

    Raises
    ------
    UsageError
        When `out` does not fit; everything that the reader raises.
    """
    info = reader.describe()
    check_out(info, box, out)
    requests = block_requests(info, box, out, boundary=boundary)
    if is_padded(requests, box):
        out[...] = 0
    read_many(reader, requests)


def block_requests(info: VolumeInfo, box: Box, out: Volume, *, boundary: str | Boundary) -> list[Request]:
    """Return what `read_block` reads into which part of `out`."""
    parts = pieces(box, info.spatial, boundary)
    return [Request(part.source, out[(slice(None), *part.target.slices)]) for part in parts]


def is_padded(requests: Sequence[Request], box: Box) -> bool:
    """Tell whether a part of a block is not read but zero."""
    return sum([request.box.size for request in requests]) < box.size


def block_cost(reader: Reader, box: Box, *, boundary: str | Boundary) -> ReadCost:
    """Return what `read_block` asks of the storage; a chunk that serves two pieces counts twice."""
    parts = pieces(box, reader.describe().spatial, boundary)
    if len(parts) == 1:  # nearly always
        return reader.cost(parts[0].source)
    return sum((reader.cost(part.source) for part in parts), ReadCost())


def read_plane(reader: Reader, axis: int, index: int) -> Volume:
    """Return the plane of channel 0 at `index` of spatial `axis`, two-dimensional; only its chunks are read."""
    info = reader.describe()
    start, stop = [0, 0, 0], list(info.spatial)
    start[axis], stop[axis] = index, index + 1
    box = Box(tuple(start), tuple(stop))
    out = np.empty((info.shape[0], *box.shape), info.native_dtype)
    reader.read_into(box, out)
    plane: Volume = out[0].squeeze(axis)
    return plane
