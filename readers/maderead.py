"""MadeRead: a read that was made before, which the core makes again, with those of other files, by one call.

Rules of this file:

1. Nothing stays open for it: the core opens its file, and finds by its stamp that it is the one it was. So there may be
   many more of these than open files.
2. Only files that stamps tell from themselves once they are written to: settled ones, of this node.
3. What does not come is left undone, for whoever asked to read it as if it were new.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from voxload.core.library import function
from voxload.errors import InternalError
from voxload.readers.pasting.kernels import Table
from voxload.readers.pasting.plainparts import runs_of, spans_of
from voxload.readers.protocol import ReadCost, Reader
from voxload.readers.requests import Request
from voxload.readers.scratch import address, path_of
from voxload.readers.storage.stamp import Stamp
from voxload.readers.team import team

_repeat_reads = function("repeat_reads", "pni", "n")
_PAIR = struct.Struct("=QQ")
"""``struct repeat``."""
_CHUNKS, _RUNS, _SPANS = range(3)
_OWN_BYTES = 2**11
"""What one counts beside its arrays."""
_COUNT, _VOLUME, _BOXES = 1, 4, 5
"""Where in ``struct made_read`` these stand."""
Numbers = npt.NDArray[np.int64]
Shared = tuple[object, ...]
Seen = Sequence[tuple[str, Stamp | None]]
"""Files as they were; None of those that were not there."""


@dataclass(frozen=True, slots=True)
class PlainFile:
    """A file in which voxels lie as they are."""

    path: str
    """The file."""
    stamp: Stamp
    """It, as it was."""
    width: int
    """Bytes of a voxel."""
    is_swapped: bool
    """Whether they stand in the other order than this machine's."""
    types: tuple[int, int]
    """Stored type and what it is cast to, as the core numbers them; -1 for both where nothing is cast."""


@dataclass(frozen=True, slots=True, eq=False)
class MovedBoxes:
    """Boxes of a read that was moved."""

    boxes: Numbers
    """``struct wanted`` of each, of arrays that begin at address 0."""
    shards: tuple[int, ...]
    """Numbers of the shards that hold them, where chunks lie in shards."""
    cost: ReadCost
    """What they cost."""


class Moves(Protocol):
    """What it takes to read boxes of the same extents at other places; immutable."""

    @property
    def is_partial(self) -> bool:
        """Whether there are places at which it is not known yet how to read."""
        ...

    def moved(self, by: Sequence[int]) -> MovedBoxes | None:
        """Return the boxes so many voxels (d, h, w) further on.

        None outside the volume, and where it is not known how to read there.
        """
        ...

    def joined(self, earlier: Moves) -> Moves:
        """Return what also knows what another one of the same volume does."""
        ...

    def together(self, made: MadeRead, moved: Sequence[tuple[MovedBoxes, int]]) -> MadeRead:
        """Return the read of all boxes that were moved, each into arrays that begin at an address of their own."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class MadeRead:
    """A read into arrays that begin at address 0; immutable. Equal to itself alone."""

    numbers: Numbers
    """``struct made_read``."""
    at: int
    """Where that is."""
    unit: int
    """Bytes that the address of the first array must be a multiple of."""
    nbytes: int
    """About as many bytes as this holds, beside `shared`."""
    shared: Shared
    """What others may hold, too: how the volume's chunks are stored, and where. Each says how large it is in
    `held_bytes`, or in an array's `nbytes`."""
    owners: tuple[object, ...]
    """All that the numbers point to."""
    moves: Moves | None = None
    """How other places are read; None where that is not known."""

    def joined(self, earlier: MadeRead) -> MadeRead:
        """Return one that can be moved to where an earlier one of the same volume can be, too."""
        if self.moves is None or earlier.moves is None:
            return self
        return replace(self, moves=self.moves.joined(earlier.moves))

    def together(self, moved: Sequence[tuple[MovedBoxes, int]]) -> MadeRead:
        """Return the read of boxes that were moved; see Moves."""
        if self.moves is None:
            raise InternalError("read", found="boxes that were moved", expected="a read that can be")
        return self.moves.together(self, moved)

    def of_boxes(self, boxes: Numbers, volume: Numbers | None, owners: tuple[object, ...]) -> MadeRead:
        """Return a read of other boxes, `struct wanted` each.

        `volume` is the ``struct volume`` that it goes by, where that is not the same; `owners` own what it points to.
        """
        numbers = self.numbers.copy()
        numbers[_COUNT], numbers[_BOXES] = len(boxes), address(boxes)
        if volume is not None:
            numbers[_VOLUME] = address(volume)
        return MadeRead(numbers, address(numbers), self.unit, self.nbytes, (), (boxes, volume, owners, self))

    @classmethod
    def of_chunks(
        cls,
        volume: Numbers,
        boxes: npt.NDArray[np.uint64],
        *,
        unit: int,
        seen: Seen,
        shared: Shared,
        shards: int = 0,
    ) -> MadeRead:
        """Return a read of chunks.

        Parameters
        ----------
        volume
            ``struct volume``.
        boxes
            ``struct wanted`` of each box.
        unit
            See the field.
        seen
            Files that describe the volume.
        shared
            What own what `volume` points to.
        shards
            Rows of the list of shards that it points to.
        """
        files, owned = _seen(seen)
        head = [_CHUNKS, len(boxes), address(files), len(seen), address(volume), address(boxes), shards]
        return cls._of([*head, *(0,) * 9], unit, (files, volume, boxes, *owned), shared)

    @classmethod
    def of_plain(cls, file: PlainFile, rows: Table, *, unit: int) -> MadeRead | None:
        """Return a read of voxels that lie in a file as they are; None where that is better read from a map.

        Parameters
        ----------
        file
            The file.
        rows
            The read's plan, in which FIRST and STOP count from the file's first byte.
        unit
            See the field.
        """
        stamp, path = file.stamp.numbers(), path_of(file.path)
        where = [0, 0, 0, 0, 0, address(path), address(stamp)]
        is_swapped, is_cast = file.is_swapped and file.width > 1, file.types[1] >= 0
        runs = None if is_swapped or is_cast else runs_of(rows, file.width)
        if runs is not None:
            tail = [address(runs), 0, 0, file.width, 0, -1, -1]
            return cls._of([_RUNS, len(runs), *where, *tail], unit, (stamp, path, runs), ())
        found = spans_of(rows, file.width)
        if found is None:
            return None
        spans, parts = found
        tail = [0, address(spans), address(parts), file.width, is_swapped, *file.types]
        return cls._of([_SPANS, len(spans), *where, *tail], unit, (stamp, path, spans, parts), ())

    @classmethod
    def _of(cls, numbers: list[int], unit: int, owners: tuple[npt.NDArray[Any], ...], shared: Shared) -> MadeRead:
        made = np.array(numbers, np.int64)
        nbytes = _OWN_BYTES + sum(one.nbytes for one in owners)
        return cls(made, address(made), unit, nbytes, shared, (*owners, *shared))


def bytes_of(shared: object) -> int:
    """Return about as many bytes as one of the `shared` objects of a read holds."""
    return int(getattr(shared, "held_bytes", getattr(shared, "nbytes", 0)))


@runtime_checkable
class Repeatable(Protocol):
    """A reader that can tell how the core makes a read again."""

    def made_read(self, requests: Sequence[Request], base: int) -> MadeRead | None:
        """Return a read that was just made, into arrays that lie so behind an address; None where it cannot be."""
        ...


@cache
def _is_repeatable(kind: type) -> bool:
    """Tell whether readers of a class are `Repeatable`; asked once, for to look that up takes long."""
    return issubclass(kind, Repeatable)


def is_repeatable(reader: Reader) -> bool:
    """Tell whether a reader may tell of reads that it made."""
    return _is_repeatable(type(reader))


def made_read(reader: Reader, requests: Sequence[Request], base: int) -> MadeRead | None:
    """Return a read that `reader` just made, see `Repeatable`; None where it cannot tell."""
    return cast("Repeatable", reader).made_read(requests, base) if is_repeatable(reader) else None


def repeat(reads: Sequence[tuple[int, int]]) -> int:
    """Make reads again; return how many did not come whole, whose arrays are undefined then.

    `reads` has for each its `at` and the address of its first array. The caller keeps all of these alive.
    """
    numbers = b"".join([_PAIR.pack(*pair) for pair in reads])  # bytes: their address takes no time to find
    failed: int = _repeat_reads(numbers, len(reads), team().threads)
    return failed


def _seen(seen: Seen) -> tuple[Numbers, list[npt.NDArray[Any]]]:
    """Return ``struct seen`` of each file, and what they point to."""
    owned: list[npt.NDArray[Any]] = []
    table = np.zeros((len(seen), 2), np.int64)
    for row, (path, stamp) in zip(table, seen, strict=True):
        parts = [path_of(path)] + ([] if stamp is None else [stamp.numbers()])
        row[: len(parts)] = [address(part) for part in parts]
        owned += parts
    return table, owned
