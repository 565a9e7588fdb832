"""ChunkFiles: the chunks of an array that keeps each in a file of its own."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np

from voxload.errors import DataError
from voxload.readers.chunks.chunkcache import Identity
from voxload.readers.chunks.chunked import Fetch, Fetched, FileNames
from voxload.readers.decode.ratio import longest_stored
from voxload.readers.pasting.filekernels import load_file
from voxload.readers.pasting.pasteplan import Place
from voxload.readers.remote.coalesce import Piece, plan_requests
from voxload.readers.remote.fetchers import fetchers
from voxload.readers.remote.flight import Flight
from voxload.readers.scratch import Bytes, scratch
from voxload.readers.storage.file import open_for_reading, read_range, reads_directly
from voxload.readers.storage.locality import is_node_local
from voxload.readers.storage.readahead import FEW, PIECE_BYTES, is_cold_byte, probed
from voxload.readers.storage.stamp import Stamp
from voxload.readers.zarr.chunkindex import KeyOf

_NAMES = 2**14
"""Names remembered: those of a sample's blocks, in a few MiB."""


@dataclass(frozen=True, slots=True)
class _OpenFile:
    """A chunk's file."""

    path: str
    descriptor: int
    size: int


class ChunkFiles:
    """Fetches chunks with one open, one read and one close each; safe to use from many threads at once.

    That a file is not there is learnt from the failing open: to ask first would cost a round trip more, and on a
    parallel file system round trips are what small files cost.

    Parameters
    ----------
    folder
        The hierarchy's folder.
    key_of
        Names of the chunks' files below it.
    decoded
        Bytes of a decoded chunk.
    is_plain
        Whether they are stored as they are, so that every file has as many.
    """

    def __init__(self, folder: str, key_of: KeyOf, *, decoded: int, is_plain: bool) -> None:
        self._folder = folder.rstrip("/")
        self._key_of = key_of
        self._exact = decoded if is_plain else None
        self._limit = longest_stored(decoded, is_plain=is_plain)
        self._is_local = is_node_local(folder) and not reads_directly()
        self._names: dict[Place, Bytes] = {}

    def fetch(self, place: Place) -> Fetched | None:
        """Return a chunk as stored, or None when there is no such file."""
        if self._is_local and (data := self._load(place)) is not None:
            return Fetched(data)
        with self._opened(place) as found:
            return None if found is None else Fetched(_read(found, 0, found.size, scratch.stored))

    def _load(self, place: Place) -> Bytes | None:
        """Return a chunk as stored; None where anything is unusual, for the careful way to say what."""
        name, room = self._encoded(place), scratch.room()
        size = load_file(name, room)
        if not 0 < size <= self._limit or self._exact not in (None, size):
            return None
        data = scratch.stored(size)
        # Scratch that had to grow is empty. It does so a few times only: the largest chunk decides.
        return data if size <= room.size or load_file(name, data) == size else None

    def fetch_part(self, place: Place, start: int, stop: int) -> Fetched | None:
        """Return a chunk of which only the bytes from `start` to `stop` are what is stored."""
        with self._opened(place) as found:
            if found is None:
                return None
            data = scratch.stored(found.size)
            _read(found, start, min(stop, found.size), lambda _: data[start:stop])
            return Fetched(data)

    @contextmanager
    def expect(self, places: Sequence[Place]) -> Iterator[Fetch]:
        """Let chunks come ahead of their use: announced where they lie on this node, else by many requests at once."""
        if self._is_local:
            with self._announced(places):
                yield self.fetch
            return
        pieces = [Piece(place, self._key_of(place), 0, self._limit) for place in places]
        with Flight(plan_requests(pieces), lambda request: self._fresh(request.pieces[0].place)) as flight:
            yield lambda place: None if (data := flight.take(place)) is None else Fetched(data)

    def _fresh(self, place: Place) -> Bytes | None:
        """Return a chunk in memory of its own."""
        with self._opened(place) as found:
            if found is None:
                return None
            return _read(found, 0, found.size, lambda size: np.empty(size, np.uint8))

    @contextmanager
    def _announced(self, places: Sequence[Place]) -> Iterator[None]:
        """Have chunks announced by threads that wait for nothing else, unless they are in memory."""
        is_cold = len(places) >= FEW and any(self._is_cold(place) for place in probed(places))
        announcing = [fetchers().submit(self._announce, place) for place in places] if is_cold else []
        try:
            yield
        finally:
            for one in announcing:
                one.cancel()

    def _is_cold(self, place: Place) -> bool:
        """Tell whether reading a chunk would wait; whatever is wrong with it, reading it says."""
        try:
            with self._opened(place) as found:
                return found is not None and is_cold_byte(found.descriptor, 0)
        except (DataError, OSError):
            return False

    def _announce(self, place: Place) -> None:
        """Tell the system that a chunk will be read."""
        with suppress(DataError, OSError), self._opened(place) as found:
            if found is None:
                return
            for start in range(0, found.size, PIECE_BYTES):
                os.posix_fadvise(found.descriptor, start, PIECE_BYTES, os.POSIX_FADV_WILLNEED)

    @contextmanager
    def _opened(self, place: Place) -> Iterator[_OpenFile | None]:
        """Yield a chunk's open file, or None when there is none."""
        path = self.path(place)
        try:
            descriptor = open_for_reading(path)
        except (FileNotFoundError, NotADirectoryError):
            yield None
            return
        try:
            size = _file_size(os.fstat(descriptor), path)
            if self._exact not in (None, size):
                raise DataError(path, found=f"{size} bytes", expected=f"a stored chunk of {self._exact} bytes")
            yield _OpenFile(path, descriptor, size)
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from error  # read(2) does not say which file
        finally:
            os.close(descriptor)

    def identify(self, places: Sequence[Place]) -> list[Identity | None]:
        """Tell chunks from all others; not those whose files were written to just now, or are not there."""
        if self._is_local or len(places) == 1:
            return [self._identity(place) for place in places]
        return list(fetchers().map(self._identity, places))

    def _identity(self, place: Place) -> Identity | None:
        # Not by its name: a network file system answers that from memory for seconds, but asks its server at each open.
        try:
            with self._opened(place) as found:
                stamp = None if found is None else Stamp.of(found.path, found.descriptor)
        except (DataError, OSError):  # which the read reports
            return None
        return Identity(stamp) if stamp and stamp.is_settled else None

    def files(self, places: Sequence[Place]) -> FileNames:
        """Return the names of chunks' files."""
        names = [self._encoded(place) for place in places]
        starts = np.cumsum([0, *map(len, names[:-1])], dtype=np.uint64)
        return FileNames(np.frombuffer(b"".join(name.data for name in names), np.uint8), starts)

    def _encoded(self, place: Place) -> Bytes:
        """Return a chunk's name as the C library takes it; remembered, for a key takes longer to make than to open."""
        name = self._names.get(place)
        if name is None:
            if len(self._names) >= _NAMES:
                self._names.clear()
            name = np.frombuffer(os.fsencode(self.path(place)) + b"\0", np.uint8)
            self._names[place] = name
        return name

    def locate(self, places: Sequence[Place]) -> None:
        """Return None: to map a file for one chunk costs more than to read it."""

    def path(self, place: Place) -> str:
        """Return the file of a chunk."""
        return f"{self._folder}/{self._key_of(place)}"

    def name(self, place: Place) -> str:
        """Return a chunk's name in the hierarchy."""
        return self._key_of(place)

    def check_unchanged(self) -> None:
        """Do nothing: nothing is remembered of the files."""

    def is_outdated(self) -> bool:
        """Return False: nothing is remembered of the files."""
        return False

    def close(self) -> None:
        """Do nothing: no file stays open."""


def _read(found: _OpenFile, start: int, stop: int, memory: Callable[[int], Bytes]) -> Bytes:
    """Return the bytes from `start` to `stop` of a file."""
    data = read_range(found.descriptor, start, stop - start, memory)
    if data.size < stop - start:
        expected = f"{stop - start}: the file was cut short"
        raise DataError(found.path, found=f"{data.size} bytes at {start}", expected=expected)
    return data


def _file_size(status: os.stat_result, path: str) -> int:
    """Return the bytes of a chunk's file; refuse a folder, a device or an empty file in its place."""
    if not stat.S_ISREG(status.st_mode):
        raise DataError(path, found="a folder or device", expected="a file")
    if not status.st_size:
        raise DataError(path, found="an empty file", expected="a stored chunk")
    return status.st_size
