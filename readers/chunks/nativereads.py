"""NativeReads: a volume's chunks, fetched, decoded and pasted by one call of the core."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from voxload.core.library import function
from voxload.errors import DataError
from voxload.readers.chunks.checksums import Checksums
from voxload.readers.chunks.chunkmoves import ChunkMoves, ListedShards, VolumeAxes
from voxload.readers.chunks.nativesources import SHARDS_PLACE, Source
from voxload.readers.decode import codecs, libraries
from voxload.readers.decode.bitpacking import NBit, ScaleOffset
from voxload.readers.decode.bitshuffle import Bitshuffle
from voxload.readers.decode.blosc2 import Blosc2
from voxload.readers.decode.szip import Szip
from voxload.readers.knownreads import KnownReads, base_of, key_of
from voxload.readers.maderead import MadeRead, Seen, bytes_of
from voxload.readers.pasting.kernels import AXES, LINE, WANTED_MAY_STREAM, WANTED_TO
from voxload.readers.pasting.pasteplan import ChunkShape, Place, Wanted, fits, numbers_of
from voxload.readers.pasting.paster import kinds_of
from voxload.readers.requests import Request
from voxload.readers.scratch import address
from voxload.readers.team import before_fork, team

before_fork(function("end_core_helpers", ""))

_can_read = function("can_read", "r", "b")
_read_boxes = function("read_boxes", "rrniwn", "i")
_read_again = function("read_again", "ppnni", "b")
_MOST_STEPS = 8
_FILTERS = {
    codecs.DEFLATE: 0, codecs.GZIP: 1, codecs.ZSTD: 2, codecs.LZ4_HDF5: 3, codecs.LZ4_NUMCODECS: 4, codecs.BLOSC: 5,
    codecs.LZF: 6, codecs.Fletcher32(): 8, codecs.Crc32c(): 9, codecs.BZIP2: 11,
}  # fmt: skip
"""Numbers of ``enum filter``."""
_BITSHUFFLE, _SZIP, _BLOSC2, _SCALE_OFFSET, _SHUFFLE, _IDLE = 7, 10, 12, 13, 14, 15
_STEP = 8
"""Numbers of ``struct step``."""
_IS_BIG, _HAS_FILL, _IS_FLOAT = 1, 2, 4
_MOST_LEFT = 4096
"""Chunks that are told of by number; of more, all are done the careful way."""
_MOST_CELLS = 2**62


@dataclass(frozen=True, slots=True)
class NativeVolume:
    """What the core knows of a volume: ``struct volume``, and the arrays that it points to."""

    numbers: npt.NDArray[np.int64]
    """The structure."""
    owners: tuple[object, ...]
    """What it points to."""
    shape: ChunkShape
    """How elements lie in its chunks."""
    grid: Place
    """Chunks along each axis."""

    @property
    def held_bytes(self) -> int:
        """About as many bytes as this holds."""
        return self.numbers.nbytes + sum(map(bytes_of, self.owners))

    @classmethod
    def of(
        cls,
        shape: ChunkShape,
        pipeline: codecs.Pipeline,
        source: Source,
        *,
        grid: Place,
        target: np.dtype[Any],
        checksums: Checksums | None,
    ) -> NativeVolume | None:
        """Return the volume, or None where the core cannot decode it.

        Parameters
        ----------
        shape, pipeline
            How elements lie in chunks, and chunks are stored.
        source
            Where they are.
        grid
            Chunks along each axis.
        target
            What voxels are read as.
        checksums
            What chunks are compared with; None where nothing is recorded.
        """
        owned: list[npt.NDArray[Any]] = []
        steps = _steps_of(pipeline, owned)
        if steps is None or prod(shape.extents) * shape.itemsize != pipeline.nbytes or prod(grid) > _MOST_CELLS:
            return None
        libraries.load()
        sums: tuple[npt.NDArray[Any], ...] = ()
        if checksums is not None:
            sums = np.ascontiguousarray(checksums.values), np.ascontiguousarray(checksums.present)
        pad = AXES - len(shape.extents)
        strides = [stride * shape.itemsize for stride in shape.strides]
        numbers = [
            *(1,) * pad, *shape.extents, *(0,) * pad, *strides, *(1,) * pad, *grid,
            *steps, *(0,) * (_STEP * _MOST_STEPS - len(steps)),
            len(pipeline.steps), pipeline.shift, pipeline.nbytes, pipeline.is_shuffled,
            shape.itemsize, shape.is_swapped and shape.itemsize > 1,
            *([address(one) for one in sums] or (0, 0)),
            _number_of(pipeline),
            *kinds_of(shape.dtype, target),
            *source.numbers(),
        ]  # fmt: skip
        made = np.array(numbers, np.int64)
        return cls(made, (source, *sums, *owned), shape, grid) if _can_read(made) else None


_pipelines: dict[codecs.Pipeline, int] = {}
_numbering = threading.Lock()


def _number_of(pipeline: codecs.Pipeline) -> int:
    """Return a pipeline's number, from 1 on, the same for equal ones; chunks that are kept are told apart by it."""
    with _numbering:
        return _pipelines.setdefault(pipeline, len(_pipelines) + 1)


def _steps_of(pipeline: codecs.Pipeline, owned: list[npt.NDArray[Any]]) -> list[int] | None:
    """Return a pipeline's steps as numbers, some of which are addresses of arrays that join the `owned` ones.

    None where the core does not know a step.
    """
    numbers: list[int] = []
    for step in pipeline.steps:
        known = _numbers_of(step, owned)
        if known is None:
            return None
        numbers += [*known, *(0,) * (_STEP - len(known))]
    return numbers if len(pipeline.steps) <= _MOST_STEPS else None


def _numbers_of(step: codecs.Step, owned: list[npt.NDArray[Any]]) -> tuple[int, ...] | None:
    """Return ``struct step``, of which zeros at the end are left out."""
    match step:
        case Bitshuffle():
            return _BITSHUFFLE, step.itemsize, step.block, int(step.compressor)
        case Szip():
            return _SZIP, step.itemsize, step.block, step.line, step.options
        case Blosc2():
            if step.extents is None:
                return (_BLOSC2,)
            owned.append(np.array(step.extents, np.uint64))
            return _BLOSC2, 0, len(step.extents), 0, address(owned[-1])
        case codecs.Unshuffle():
            return _SHUFFLE, step.width
        case NBit(precision=0) | ScaleOffset(is_idle=True):
            return (_IDLE,)
        case ScaleOffset():
            flags = _IS_BIG * step.is_big | _HAS_FILL * (step.fill is not None)
            scale = int(np.float64(step.scale).view(np.int64))
            fill = int(np.uint64(step.fill or 0).view(np.int64))
            return _SCALE_OFFSET, step.itemsize, 0, 0, 0, flags | _IS_FLOAT * (step.kind == "f"), fill, scale
    return (_FILTERS[step],) if step in _FILTERS else None


Hold = Callable[[Sequence[Place]], AbstractContextManager[bool]]
"""Keeps the files open that hold the chunks between two places of each box, meanwhile; yields whether all are."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A read that was made before."""

    boxes: npt.NDArray[np.uint64]
    """Of arrays that begin at address 0."""
    at: int
    """Address of `boxes`."""
    unit: int
    """Bytes that the array's address must be a multiple of, as that of the first read was."""
    files: Sequence[Place]
    """Places of the files that must be open."""


class NativeReads:
    """Reads boxes of one volume; safe to use from many threads at once.

    Parameters
    ----------
    volume
        The volume.
    hold
        Keeps files open while they are read; None where they stay so.
    files_of
        Names the files, by place, that hold chunks from one place up to another; None likewise.
    """

    def __init__(
        self,
        volume: NativeVolume,
        *,
        hold: Hold | None = None,
        files_of: Callable[[Sequence[Wanted]], Sequence[Place] | None] | None = None,
    ) -> None:
        self._volume, self._hold, self._files_of = volume, hold, files_of
        self._at = address(volume.numbers)
        self._known: KnownReads[_Known] = KnownReads()

    def number(self, place: Place) -> int:
        """Return a chunk's number, counted along the grid."""
        number = 0
        for index, count in zip(place, self._volume.grid, strict=True):
            number = number * count + index
        return number

    def read(self, wanted: Sequence[Wanted]) -> Callable[[Place], bool] | None:
        """Fill boxes; return what tells which chunks were not pasted, or None where all were."""
        boxes, files = self._boxes(wanted), self._files_of(wanted) if self._files_of else ()
        if boxes is None or files is None:
            return _all
        left = np.empty(_MOST_LEFT, np.uint64)
        try:
            with self._hold(files) if self._hold else nullcontext(enter_result=True):
                missed = _read_boxes(self._volume.numbers, boxes, len(boxes), team().threads, left, left.size)
        except (DataError, OSError):  # whose words the careful way finds
            return _all
        if not 0 <= missed <= _MOST_LEFT:
            return _all
        numbers = set(left[:missed].tolist())
        return (lambda place: self.number(place) in numbers) if missed else None

    def _boxes(self, wanted: Sequence[Wanted]) -> npt.NDArray[np.uint64] | None:
        """Return boxes as the core takes them; None where one does not fit."""
        shape, grid = self._volume.shape, self._volume.grid
        pad = AXES - len(shape.extents)
        boxes = []
        for one in wanted:
            ends = zip(one.box.stop, shape.extents, grid, strict=True)
            if one.view.shape != one.box.shape or not fits(one.view) or any(e > n * g for e, n, g in ends):
                return None
            start, stop = (0,) * pad + one.box.start, (1,) * pad + one.box.stop
            boxes.append(numbers_of(start, stop, one.view, shape))
        return np.array(boxes, np.uint64)

    def remember(self, requests: Sequence[Request], wanted: Sequence[Wanted]) -> None:
        """Remember a read, of which `wanted` are the boxes and arrays in stored axis order."""
        base = address(requests[0].out)
        key = key_of(requests, base)
        if not self._known.comes_again(key):
            return
        moved = self._moved(wanted, base)
        files = self._files_of(wanted) if self._files_of else ()
        if moved is None or files is None:
            return
        boxes, unit = moved
        self._known.add(key, _Known(boxes, address(boxes), unit, files))

    def _moved(self, wanted: Sequence[Wanted], base: int) -> tuple[npt.NDArray[np.uint64], int] | None:
        """Return boxes as if the arrays' base were address 0, and what another base must be a multiple of.

        None where one does not fit.
        """
        boxes = self._boxes(wanted)
        if boxes is None:
            return None
        boxes[:, WANTED_TO] -= np.uint64(base)
        return boxes, LINE if boxes[:, WANTED_MAY_STREAM].any() else wanted[0].view.itemsize

    def made(
        self, wanted: Sequence[Wanted], base: int, *, axes: VolumeAxes, seen: Seen = (),
        shards: ListedShards | None = None,
    ) -> MadeRead | None:  # fmt: skip
        """Return a read that was just made; None where boxes do not fit.

        Parameters
        ----------
        wanted, base
            See `remember` and Repeatable.
        axes
            Where it can be moved.
        seen
            See `MadeRead.of_chunks`.
        shards
            Where chunks lie in shards: those of a small array, the ones that hold what is wanted among them.
        """
        moved = self._moved(wanted, base)
        if moved is None:
            return None
        boxes, unit = moved
        volume = self._volume
        extents = tuple([extent * count for extent, count in zip(volume.shape.extents, volume.grid, strict=True)])
        moves = ChunkMoves(boxes, extents, axes, volume.numbers, shards)
        if shards is None:
            made = MadeRead.of_chunks(volume.numbers, boxes, unit=unit, seen=seen, shared=(volume,))
            return replace(made, moves=moves)
        needed = shards.holding([one.box for one in wanted])
        if needed is None:
            return None
        listed, owners = shards.listed(needed)
        numbers = volume.numbers.copy()
        numbers[SHARDS_PLACE] = address(listed)
        shared = (volume, *owners)
        made = MadeRead.of_chunks(numbers, boxes, unit=unit, seen=seen, shared=shared, shards=shards.count)
        return replace(made, moves=moves)

    def read_again(self, requests: Sequence[Request]) -> bool:
        """Fill the arrays of a read that was made before, or such arrays; False where it is to be made as if new.

        What was checked then holds as long as the files are what they were, which is looked at.
        """
        base = base_of(requests)
        if base is None:
            return False
        key = key_of(requests, base)
        known = self._known.find(key)
        if known is None or base % known.unit:
            return False
        count, threads = len(known.boxes), team().threads
        if self._hold is None:
            is_done = _read_again(self._at, known.at, count, base, threads)
        else:
            try:
                with self._hold(known.files) as are_open:
                    is_done = are_open and _read_again(self._at, known.at, count, base, threads)
            except (DataError, OSError):
                is_done = False
        if not is_done:
            self._known.drop(key)
        return bool(is_done)


def _all(_place: Place) -> bool:
    return True
