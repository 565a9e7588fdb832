"""StreamSource: a cube in a compressed stream, which gives its bytes in one order only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO
from zipfile import BadZipFile

from voxload.convert.sources.flat import FlatFile
from voxload.convert.sources.protocol import RawCube, ReadInto
from voxload.errors import DataError
from voxload.geometry import Box
from voxload.readers.faults import translated
from voxload.readers.protocol import Volume

PIECE_BYTES = 2**18
"""What is decompressed at once."""
SCRATCH_BYTES = 4 * PIECE_BYTES
"""Memory of one decompressor with the pieces in its hands."""

Watch = Callable[[memoryview, int], None]
"""Sees every byte that is passed, in order, with its position; raises DataError where a checksum does not fit."""


@dataclass(frozen=True, slots=True)
class Stream:
    """How a decompressed stream is begun, and what of it is passed."""

    begin: Callable[[], IO[bytes]]
    """Opens the stream at its first byte; closing it closes the file."""
    end: int
    """Position that is passed on to once the last voxel was given, so that what a checksum covers was seen whole."""
    watch: Callable[[], Watch] | None = None
    """Gives what looks at a stream from its first byte on, where the stream itself compares no checksum."""


@dataclass(frozen=True, slots=True)
class StreamSource:
    """A cube in a compressed stream.

    Boxes in the order of the bytes are read in one pass; one that lies behind begins the stream anew. Checksums are
    compared when the last voxel is given, before the call that asked for it returns.
    """

    cube: RawCube
    """What is known of it."""
    file: FlatFile
    """Where it lies in the decompressed stream."""
    stream: Stream
    """How that is begun."""

    def describe(self) -> RawCube:
        """Return what is known of the cube."""
        return self.cube

    @contextmanager
    def open(self) -> Iterator[ReadInto]:
        """Open the stream, once for each channel where these lie one behind the other."""
        size = prod(self.file.shape) * self.file.dtype.itemsize
        count = passes(self.file)
        with ExitStack() as stack:
            cursors = [Cursor(self.file.path, self.stream, self.file.offset + size) for _ in range(count)]
            for cursor in cursors:
                stack.callback(cursor.close)

            def fill(content: memoryview, start: int) -> None:
                cursors[(start - self.file.offset) * count // size].fill(content, start)

            def read_into(box: Box, out: Volume) -> None:
                self.file.read(fill, box, out)

            yield read_into


def passes(file: FlatFile) -> int:
    """Return how many times a stream is read so that planes of all channels come in order."""
    return file.shape[0] if file.order.axes[0] == "C" else 1


class Cursor:
    """One pass through a stream.

    Parameters
    ----------
    path
        The file, for messages.
    stream
        The stream.
    voxels_end
        Position of the first byte behind the last voxel.
    """

    def __init__(self, path: Path, stream: Stream, voxels_end: int) -> None:
        self._path = path
        self._stream = stream
        self._voxels_end = voxels_end
        self._file: IO[bytes] | None = None
        self._watch: Watch | None = None
        self._position = 0

    def fill(self, content: memoryview, start: int) -> None:
        """Fill `content` from position `start` on; raises DataError where the stream is damaged or ends before."""
        if self._file is None or start < self._position:
            self._begin()
        self._pass_to(start)
        for first in range(0, len(content), PIECE_BYTES):
            self._read(content[first : first + PIECE_BYTES])
        if self._position >= self._voxels_end:
            self._pass_to(self._stream.end)

    def close(self) -> None:
        """Close the stream."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _begin(self) -> None:
        self.close()
        with decoding(f"{self._path}"):
            self._file = self._stream.begin()
        self._watch = self._stream.watch() if self._stream.watch is not None else None
        self._position = 0

    def _pass_to(self, position: int) -> None:
        skipped = memoryview(bytearray(min(PIECE_BYTES, max(position - self._position, 0))))
        while self._position < position:
            self._read(skipped[: position - self._position])

    def _read(self, piece: memoryview) -> None:
        """Fill `piece` with what comes next."""
        done = 0
        while done < len(piece):
            with decoding(f"{self._path}"):
                data = self._file.read(len(piece) - done) if self._file is not None else b""
            if not data:
                raise DataError(
                    f"{self._path}",
                    found=f"the end of the stream at byte {self._position + done}",
                    expected=f"{len(piece) - done} bytes more",
                    remedy="the file was cut while it was read: copy it again",
                )
            piece[done : done + len(data)] = data
            done += len(data)
        if self._watch is not None:
            self._watch(piece, self._position)
        self._position += done


@contextmanager
def decoding(subject: str) -> Iterator[None]:
    """Turn what a decompressor raises into DataError, a refusing storage into StorageError."""
    try:
        with translated(subject):
            yield
    except BadZipFile as error:
        remedy = "copy or convert it again: it is damaged or incomplete"
        raise DataError(subject, found=f"{error}", expected="a complete archive", remedy=remedy) from error
