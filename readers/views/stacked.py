"""StackedReader: several datasets as the channels of one volume."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from voxload.errors import DataError, UsageError
from voxload.geometry import SPATIAL_AXES, Box
from voxload.readers.axes import lead_box
from voxload.readers.cfpacking import Packing
from voxload.readers.generation import Generation, as_dated
from voxload.readers.protocol import NOTHING, Location, ReadCost, Reader, Volume, VolumeInfo, check_box, held_bytes
from voxload.readers.requests import Request, check_requests, read_many


class StackedReader:
    """Reads boxes of volumes of one shape and type as one whose channels are theirs, in order; see the Reader contract.

    Of arrays with samples and time steps, each step has the channels of all.

    Parameters
    ----------
    readers
        Two readers or more; they are closed with this one.
    location
        Where the volumes are; names all of them.

    Raises
    ------
    DataError
        When their shapes differ.
    UsageError
        When their types differ.
    """

    def __init__(self, readers: Sequence[Reader], location: Location) -> None:
        infos = [reader.describe() for reader in readers]
        first = infos[0]
        for info in infos[1:]:
            if (info.spatial, info.lead[:2]) != (first.spatial, first.lead[:2]):
                raise DataError(
                    f"{location}: {info.location.dataset or info.location}",
                    found=_shape(info),
                    expected=f"{_shape(first)} as {first.location.dataset or first.location}",
                    remedy="channels of one field have one shape: name what differs as a field of its own",
                )
            if info.native_dtype != first.native_dtype:
                raise UsageError(
                    f"{location}: {info.location.dataset or info.location}",
                    found=str(info.native_dtype),
                    expected=f"{first.native_dtype} as {first.location.dataset or first.location}",
                    remedy="channels of one field have one type: name what differs as a field of its own",
                )
        self._readers = tuple(readers)
        self._counts = [info.lead[2] for info in infos]
        self._bounds = [0, *accumulate(self._counts)]
        shape = (first.samples * first.steps * self._bounds[-1], *first.spatial)
        self._info = replace(first, location=location, shape=shape, packing=_packing(infos))

    def describe(self) -> VolumeInfo:
        """Return what is known of all; what a file says of itself is the first one's."""
        return self._info

    @property
    def held_bytes(self) -> int:
        """About as many bytes as all hold."""
        return sum(map(held_bytes, self._readers))

    def cost(self, box: Box) -> ReadCost:
        """Return what reading `box` of all costs."""
        check_box(self._info, box)
        parts = self._parts(box, whole_steps=True)
        return sum((self._readers[number].cost(part) for number, part, _ in parts), NOTHING)

    def read_into(self, box: Box, out: Volume) -> None:
        """Read `box` into `out`."""
        self.read_many([Request(box, out)])

    def read_many(self, requests: Sequence[Request]) -> None:
        """Read many boxes, one volume after the other."""
        check_requests(self._info, requests)
        for reader, own in zip(self._readers, self._shares(requests), strict=True):
            if own:
                read_many(reader, own)

    def generation(self, box: Box) -> Generation | None:
        """See Dated; that of all together."""
        found = []
        for number, part, _ in self._parts(box, whole_steps=True):
            dated = as_dated(self._readers[number])
            found.append(None if dated is None else dated.generation(part))
        return Generation.joined(found)

    def is_outdated(self) -> bool:
        """See Dated."""
        dated = [as_dated(reader) for reader in self._readers]
        return any(one is not None and one.is_outdated() for one in dated)

    def close(self) -> None:
        """Close all."""
        for reader in self._readers:
            reader.close()

    def _shares(self, requests: Sequence[Request]) -> list[list[Request]]:
        """Return the requests of each volume."""
        shares: list[list[Request]] = [[] for _ in self._readers]
        for one in requests:
            for number, part, rows in self._parts(one.box):
                shares[number].append(Request(part, one.out[rows]))
        return shares

    def _parts(self, box: Box, *, whole_steps: bool = False) -> list[tuple[int, Box, slice]]:
        """Return each volume's part of a box, and the channels of the box that it is.

        With `whole_steps` a volume's part is one for all steps where it can be, and the channels mean nothing.
        """
        samples, steps, channels = self._info.lead
        spatial, begin, end = box, (0, 0, 0), (samples, steps, channels)
        if len(box.start) > len(SPATIAL_AXES):
            spatial = Box(box.start[1:], box.stop[1:])
            begin, end = lead_box(box.start[0], box.stop[0], self._info.lead)
        width, found = end[2] - begin[2], list[tuple[int, Box, slice]]()
        picked = [n * steps + t for n in range(begin[0], end[0]) for t in range(begin[1], end[1])]
        for number, (lower, upper) in enumerate(zip(self._bounds, self._bounds[1:], strict=False)):
            low, high = max(lower, begin[2]), min(upper, end[2])
            if low >= high or not picked:
                continue
            own, at = self._counts[number], low - begin[2]
            are_one = high - low == own and (whole_steps or len(picked) == 1)
            for place, step in [(0, picked[0])] if are_one else enumerate(picked):
                last = picked[-1] if are_one else step
                start, stop = step * own + low - lower, last * own + high - lower
                part = Box((start, *spatial.start), (stop, *spatial.stop))
                first = place * width + at
                found.append((number, part, slice(first, first + high - low)))
        return found


def _packing(infos: Sequence[VolumeInfo]) -> tuple[Packing | None, ...]:
    """Return what the numbers of each channel of all volumes stand for."""
    if not any(info.packing for info in infos):
        return ()
    found: list[Packing | None] = []
    for info in infos:
        own = info.packing or (None,)
        found += own if len(own) == info.lead[2] else own * info.lead[2]
    return tuple(found)


def _shape(info: VolumeInfo) -> str:
    samples, steps, _ = info.lead
    lead = f"{samples} samples of {steps} time steps of " if samples * steps > 1 else ""
    return f"{lead}{info.spatial}"
