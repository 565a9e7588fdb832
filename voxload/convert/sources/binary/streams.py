"""StreamSource: a cube in a compressed stream, which gives its bytes in one order only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Protocol
from zipfile import BadZipFile

from voxload.convert.sources.binary.flat import FlatFile
from voxload.convert.sources.binary.inflater import Inflater
from voxload.convert.sources.protocol import RawCube, ReadInto
from voxload.errors import DataError, InternalError
from voxload.geometry import Box
from voxload.readers.faults import translated
from voxload.readers.protocol import Volume

PIECE_BYTES = 2**18
"""What is decompressed at once."""
SCRATCH_BYTES = 4 * PIECE_BYTES
"""Memory of one decompressor with the pieces in its hands."""

Watch = Callable[[memoryview, int], None]
"""Sees every byte that is passed, in order, with its position; raises DataError where a checksum does not fit."""


class Decoded(Protocol):
    """A decoded stream, open at some byte of it."""

    def readinto(self, buffer: Any, /) -> int | None:
        """Fill the beginning of a buffer with what comes next; return how many bytes, 0 at the end."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


@dataclass(frozen=True, slots=True)
class Stream:
    """How a decompressed stream is begun, and what of it is passed."""

    begin: Callable[[], Decoded]
    """Opens the stream at its first byte; closing it closes the file."""
    end: int
    """Position that is passed on to once the last voxel was given, so that what a checksum covers was seen whole."""
    watch: Callable[[], Watch] | None = None
    """Gives what looks at a stream from its first byte on, where the stream itself compares no checksum."""
    is_whole: bool = False
    """Whether it must end there: what follows raises DataError."""


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

    def open(self) -> AbstractContextManager[ReadInto]:
        """Open the stream."""
        return open_stream(self.file, self.stream)


@contextmanager
def open_stream(file: FlatFile, stream: Stream) -> Iterator[ReadInto]:
    """Open a stream and yield what reads boxes of the array that lies in it at the places of `file`.

    Where channels lie one behind the other, each has a cursor of its own. They are copies of one that passes the stream
    once, and so verifies it whole, if its decoder can be copied; else each begins it for itself.
    """
    size = prod(file.shape) * file.dtype.itemsize
    count = passes(file)
    with ExitStack() as stack:

        def begun(cursor: Cursor) -> Cursor:
            stack.callback(cursor.close)
            return cursor

        first = begun(Cursor(file.path, stream, file.offset + size))
        first.begin()
        cursors = [first]
        if count > 1 and first.can_be_copied:
            starts = [file.offset + part * (size // count) for part in range(count)]
            cursors = [begun(first.copy_at(start)) for start in starts]
            first.pass_to_end()
        else:
            cursors += [begun(Cursor(file.path, stream, file.offset + size)) for _ in range(1, count)]

        def fill(content: memoryview, start: int) -> None:
            cursors[(start - file.offset) * count // size].fill(content, start)

        def read_into(box: Box, out: Volume) -> None:
            file.read(fill, box, out)

        yield read_into


def passes(file: FlatFile) -> int:
    """Return at how many places a stream is read so that planes of all channels come in order."""
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
        self._file: Decoded | None = None
        self._watch: Watch | None = None
        self._position = 0

    def begin(self) -> None:
        """Go to the first byte of the stream; raises NotFoundError, DataError and StorageError."""
        self.close()
        with decoding(f"{self._path}"):
            self._file = self._stream.begin()
        self._watch = self._stream.watch() if self._stream.watch is not None else None
        self._position = 0

    @property
    def can_be_copied(self) -> bool:
        """Whether another cursor can go on from where this one is."""
        return isinstance(self._file, Inflater) and self._watch is None

    def copy_at(self, position: int) -> Cursor:
        """Pass on to a position and return a cursor that goes on from there."""
        self._pass_to(position)
        if not isinstance(self._file, Inflater):
            raise InternalError(f"{self._path}", found="a stream that cannot be copied", remedy="please report it")
        other = Cursor(self._path, self._stream, self._voxels_end)
        other._file, other._position = self._file.copy(), self._position
        return other

    def fill(self, content: memoryview, start: int) -> None:
        """Fill `content` from position `start` on; raises DataError where the stream is damaged or ends before."""
        if self._file is None or start < self._position:
            self.begin()
        self._pass_to(start)
        for first in range(0, len(content), PIECE_BYTES):
            self._read(content[first : first + PIECE_BYTES])
        if self._position >= self._voxels_end:
            self.pass_to_end()

    def pass_to_end(self) -> None:
        """Pass on to where the stream ends for us, and see that it does where it must; raises DataError."""
        self._pass_to(self._stream.end)
        if self._stream.is_whole and self._some(memoryview(bytearray(1))):
            raise DataError(
                f"{self._path}",
                found=f"more than {self._position} decoded bytes",
                expected="the end of the compressed stream behind the last voxel",
                remedy="the header does not fit the data, or something was appended: write the file again",
            )

    def close(self) -> None:
        """Close the stream."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _pass_to(self, position: int) -> None:
        skipped = memoryview(bytearray(min(PIECE_BYTES, max(position - self._position, 0))))
        while self._position < position:
            self._read(skipped[: position - self._position])

    def _read(self, piece: memoryview) -> None:
        """Fill `piece` with what comes next."""
        done = 0
        while done < len(piece):
            count = self._some(piece[done:])
            if not count:
                raise DataError(
                    f"{self._path}",
                    found=f"the end of the stream after {self._position + done} decoded bytes",
                    expected=f"{len(piece) - done} bytes more",
                    remedy="the file is truncated or its header is wrong: copy it again",
                )
            done += count
        if self._watch is not None:
            self._watch(piece, self._position)
        self._position += done

    def _some(self, piece: memoryview) -> int:
        """Fill the beginning of `piece`; return how much of it, 0 at the end of the stream."""
        with decoding(f"{self._path}"):
            return (self._file.readinto(piece) or 0) if self._file is not None else 0


@contextmanager
def decoding(subject: str) -> Iterator[None]:
    """Turn what a decompressor raises into DataError, a refusing storage into StorageError."""
    try:
        with translated(subject):
            yield
    except BadZipFile as error:
        remedy = "copy or convert it again: it is damaged or incomplete"
        raise DataError(subject, found=f"{error}", expected="a complete archive", remedy=remedy) from error
