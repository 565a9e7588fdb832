"""Verified reads: chunks are compared with their checksums before anything is made of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from voxload.errors import DataError
from voxload.geometry import Box, chunks_touched
from voxload.readers.axes import AxisOrder
from voxload.readers.chunks.checksums import Checksums
from voxload.readers.chunks.chunkcache import Identify, Identity
from voxload.readers.chunks.chunked import ChunkedVolume, Fetch, Fetched
from voxload.readers.chunks.storedchunks import Expect, StoredChunks
from voxload.readers.faults import translated
from voxload.readers.generation import Generation
from voxload.readers.pasting.pasteplan import Place
from voxload.readers.protocol import Location, Missing, ReadCost, Volume, VolumeInfo, check_request
from voxload.readers.team import team

Name = Callable[[Place], str]
"""Names a chunk, for messages."""


def policy_of(location: Location, missing: Missing) -> Missing:
    """Return what to do about chunks that are not there; pure.

    Checksums list every chunk, those too that were never written when somebody who allowed that had them recorded.
    So these have the fill value without being asked for again, while one that was there is an error as ever.
    """
    return missing if location.checksums is None else Missing.FILL


def load_checksums(location: Location, grid: Place | None) -> Checksums | None:
    """Return the checksums that `location` names, or None when it names none.

    Parameters
    ----------
    location
        Where the volume is.
    grid
        Its chunks along each axis, in stored axis order; None when storage is contiguous.

    Raises
    ------
    DataError
        When the checksums cannot be read, or are of a volume that was cut otherwise.
    """
    if location.checksums is None:
        return None
    from voxload.readers.chunks.checksumfile import read_checksums  # noqa: PLC0415 - brings pyarrow

    found = read_checksums(location.checksums)
    if found.grid != grid:
        raise DataError(
            str(location),
            found="contiguous storage" if grid is None else f"a grid of {grid} chunks",
            expected=f"{found.grid} as in {location.checksums.path}",
            remedy="the file was rewritten since: restore it, or record its checksums anew",
        )
    return found


def verified(volume: ChunkedVolume, checksums: Checksums | None, name: Name) -> ChunkedVolume:
    """Return `volume` with chunks that are compared with `checksums`; without checksums, `volume` itself.

    A checksum is over the whole chunk, so parts of chunks are no longer fetched, nor whole ones other than by `fetch`.
    The ways around it are left out rather than switched off: one that is added later must not go by unseen.
    """
    if checksums is None:
        return volume
    expect = None if volume.expect is None else _expecting(volume.expect, checksums, name)
    fetch = _checked(volume.fetch, checksums, name)
    identify = None if volume.identify is None else _identifying(volume.identify, checksums)
    return ChunkedVolume(volume.subject, volume.shape, volume.pipeline, fetch, expect=expect, identify=identify)


def _checked(fetch: Fetch, checksums: Checksums, name: Name) -> Fetch:
    def fetch_checked(place: Place) -> Fetched | None:
        fetched = fetch(place)
        checksums.check(place, None if fetched is None else fetched.data, name=name)
        return fetched

    return fetch_checked


def _expecting(expect: Expect, checksums: Checksums, name: Name) -> Expect:
    @contextmanager
    def expect_checked(places: Sequence[Place]) -> Iterator[Fetch]:
        with expect(places) as fetch:
            yield _checked(fetch, checksums, name)

    return expect_checked


def _identifying(identify: Identify, checksums: Checksums) -> Identify:
    """Return `identify` of chunks that nobody is handed who compares them with another checksum, or with none."""

    def identify_checked(places: Sequence[Place]) -> list[Identity | None]:
        found = zip(places, identify(places), strict=True)
        return [one and replace(one, checksum=int(checksums.values[place])) for place, one in found]

    return identify_checked


class LibraryReader(Protocol):
    """A reader through h5py or zarr-python, as far as `VerifiedReader` needs it."""

    @property
    def order(self) -> AxisOrder:
        """Order of the axes as stored."""
        ...

    def generation(self, box: Box) -> Generation | None:
        """See Dated."""
        ...

    def is_outdated(self) -> bool:
        """See Dated."""
        ...

    def stored_chunks(self) -> StoredChunks | None:
        """Return the chunks as they are stored now."""
        ...

    def describe(self) -> VolumeInfo:
        """Return what is known of the volume."""
        ...

    def cost(self, box: Box) -> ReadCost:
        """Return what reading `box` costs."""
        ...

    def read_into(self, box: Box, out: Volume) -> None:
        """Read `box` into `out`."""
        ...

    def close(self) -> None:
        """Release files."""
        ...


class VerifiedReader:
    """Reads boxes through a library that takes no chunks from us; see the Reader contract.

    The chunks of a box are fetched and compared first, and then the library reads them once more: a library that
    decodes for itself cannot be handed the bytes that were compared. From remote storage that is twice the transfer.

    Parameters
    ----------
    reader
        The library's reader; it is closed with this one.
    checksums
        What its chunks are compared with.
    """

    def __init__(self, reader: LibraryReader, checksums: Checksums) -> None:
        self._reader = reader
        self._checksums = checksums

    def describe(self) -> VolumeInfo:
        """Return what is known of the volume."""
        return self._reader.describe()

    def cost(self, box: Box) -> ReadCost:
        """Return chunks and bytes of `box`, counted once."""
        return self._reader.cost(box)

    def read_into(self, box: Box, out: Volume) -> None:
        """Compare the chunks of `box` with their checksums, then read it into `out`."""
        info = self.describe()
        check_request(info, box, out)
        chunks = self.stored_chunks()
        if chunks is not None and box.size:
            touched = chunks_touched(self._reader.order.stored_box(box, info.lead), chunks.extents)
            spans = (range(lo, hi) for lo, hi in zip(touched.start, touched.stop, strict=True))
            with translated(f"{info.location}, box {box}"):
                team().run(_Checker(chunks, info.location), list(itertools.product(*spans)))
        self._reader.read_into(box, out)

    def generation(self, box: Box) -> Generation | None:
        """See Dated."""
        return self._reader.generation(box)

    def is_outdated(self) -> bool:
        """See Dated."""
        return self._reader.is_outdated()

    def stored_chunks(self) -> StoredChunks | None:
        """Return the chunks as they are stored now, compared as they are fetched."""
        chunks = self._reader.stored_chunks()
        return chunks and replace(chunks, fetch=_checked(chunks.fetch, self._checksums, chunks.name))

    def close(self) -> None:
        """Release files."""
        self._reader.close()


class _Checker:
    """Fetches a chunk for the sake of its checksum."""

    def __init__(self, chunks: StoredChunks, location: Location) -> None:
        self._chunks = chunks
        self._location = location

    def __call__(self, place: Place) -> None:
        try:
            self._chunks.fetch(place)
        except DataError as error:
            raise error.within(f"{self._location}, chunk {place}", remedy="copy or convert the file again") from error
