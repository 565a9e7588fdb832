"""Requests: several boxes of one volume, read as one; a chunk that serves many of them is decoded once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from voxload.geometry import Box
from voxload.readers.axes import AxisOrder
from voxload.readers.parts import Wanted, fits
from voxload.readers.protocol import Reader, Volume, VolumeInfo, check_request


@dataclass(frozen=True, slots=True)
class Request:
    """A box and the array that it fills; see ``Reader.read_into``."""

    box: Box
    """Spatial and inside the volume."""
    out: Volume
    """Shape ``(C, *box.shape)``."""


@runtime_checkable
class ManyReader(Reader, Protocol):
    """A reader for which many boxes at once cost less than one after the other."""

    def read_many(self, requests: Sequence[Request]) -> None:
        """Fill the array of each request, by the rules of `read_into`; when it raises, all of them are undefined."""
        ...


def read_many(reader: Reader, requests: Sequence[Request]) -> None:
    """Fill the array of each request, at once where `reader` can.

    Raises what `reader` raises; all arrays are then undefined. Thread-safe as the reader is.
    """
    if isinstance(reader, ManyReader):
        reader.read_many(requests)
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
        view = order.view(request.out)
        if not fits(view):
            copies.append((view, np.empty(view.shape, view.dtype)))
            view = copies[-1][1]
        wanted.append(Wanted(order.box(request.box, info.shape[0]), view))
    # A read has one type: a kernel casts to it or does not.
    for dtype in {one.view.dtype for one in wanted}:
        read([one for one in wanted if one.view.dtype == dtype])
    for view, copied in copies:
        np.copyto(view, copied)
