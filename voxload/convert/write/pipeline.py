"""Pipeline: one volume read, encoded and stored, tile by tile.

While threads encode the chunks of one tile, the next is read, and the one before is flushed. Chunks are stored in one
fixed order, whichever thread is done first, so that equal sources give equal files.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from itertools import chain

from voxload.catalog.statistics import Statistics
from voxload.convert.encode.encoding import Encode, Encoded, Piece
from voxload.convert.encode.staging import TileReadAhead, stage
from voxload.convert.encode.statistics import StatisticsSum
from voxload.convert.manifest import Manifest, Members, check_unchanged
from voxload.convert.plan.tiles import Cut, cuts
from voxload.convert.plan.volumeplan import VolumePlan
from voxload.convert.sources.protocol import RawCube
from voxload.convert.storage.protocol import Place
from voxload.convert.write.writer import VolumeWriter
from voxload.errors import DataError
from voxload.geometry import Box


class Recorder:
    """Stores what was encoded; for one thread.

    Records end at the same tiles in every run, also in one that takes up another: sums depend on their order.

    Parameters
    ----------
    writer
        Where chunks go.
    manifest
        The volume.
    step
        Bytes of voxels between two records, at least.
    """

    def __init__(self, writer: VolumeWriter, manifest: Manifest, *, step: int) -> None:
        self._writer, self._manifest, self._step = writer, manifest, step
        self._figures = _Figures(manifest)
        self._since = 0

    def add(self, encoded: Sequence[Encoded], nbytes: int) -> None:
        """Store chunks of so many bytes of voxels."""
        self._writer.append([(one.place, one.data) for one in encoded])
        for one in encoded:
            self._figures.add(one)
        self._since += nbytes

    def end_tile(self) -> None:
        """Record what was stored if that is much: at the end of a tile, or a later run would read it again."""
        if self._since >= self._step:
            self.record()

    def record(self) -> None:
        """Record what was stored since the last time."""
        if self._since:
            self._writer.checkpoint(self._figures.ordered())
            self._figures, self._since = _Figures(self._manifest), 0


class _Figures:
    """Figures of a tile's voxels, by sample and channel; chunks must come in one order, for sums depend on it."""

    def __init__(self, manifest: Manifest) -> None:
        self._members = Members(manifest.members)
        self._chunks = manifest.chunks
        self._found: defaultdict[tuple[int, int], StatisticsSum] = defaultdict(StatisticsSum)

    def add(self, encoded: Encoded) -> None:
        """Add those of a chunk."""
        group, *place = encoded.place
        start = tuple(index * width for index, width in zip(place, self._chunks[1:], strict=True))
        number = self._members.at(start)
        for channel, counts in enumerate(encoded.channels, group * self._chunks[0]):
            self._found[number, channel].add(counts)

    def ordered(self) -> dict[int, dict[int, Statistics]]:
        """Return them by number of the sample and of the channel."""
        found: defaultdict[int, dict[int, Statistics]] = defaultdict(dict)
        for (number, channel), counted in sorted(self._found.items()):
            found[number][channel] = counted.total()
        return found


CHECKPOINT_BYTES = 2**26
"""Voxels between two records of what is stored, at most: each waits for the device, and is what a kill costs."""
_STEPS = 8
"""Records of a small volume, at least."""


@dataclass(slots=True)
class Tally:
    """What was done with one volume."""

    read: int = 0
    """Bytes of voxels read from the sources."""
    resumed: int = 0
    """Bytes of voxels that an earlier run converted."""
    chunks: int = 0
    """Chunks encoded."""
    written: int = 0
    """Bytes stored."""


@dataclass(frozen=True, slots=True)
class _Pending:
    """What is left to do of a tile."""

    tile: Box
    """Its voxels in the raw cube."""
    chunks: list[tuple[Cut, Place]]
    """Chunks that are not stored, and their places."""
    nbytes: int
    """Bytes of their voxels."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Chunks on their way."""

    encoded: Future[list[Encoded]]
    """What becomes of them."""
    nbytes: int
    """Bytes of their voxels."""
    completes: _Pending | None
    """The tile that they are the last of."""


def convert_chunks(
    plan: VolumePlan, writer: VolumeWriter, *, workers: Executor, threads: int, advance: Callable[[int], None]
) -> Tally:
    """Store all chunks of one volume; what an interrupted run stored of it is not done again.

    Parameters
    ----------
    plan
        The volume.
    writer
        Where its chunks go.
    workers
        Threads that encode.
    threads
        How many they are.
    advance
        Told how many bytes of voxels were converted, by this run or an earlier one, after every tile.

    Raises
    ------
    DataError
        When a source is damaged or changes while it is read; nothing of the volume is kept.
    StorageError
        When the destination refuses; what was stored is kept for the next run.
    """
    tally = Tally()
    recorder = Recorder(writer, plan.manifest, step=min(CHECKPOINT_BYTES, plan.decoded_bytes // _STEPS))
    job = _Job(plan, writer, recorder, workers, 2 * threads, tally, advance)
    try:
        for number in range(len(plan.sources)):
            job.run(number)
        recorder.record()
    except DataError:
        writer.discard()
        raise
    return tally


@dataclass(frozen=True, slots=True)
class _Job:
    """One volume's conversion."""

    plan: VolumePlan
    """The volume."""
    writer: VolumeWriter
    """What is stored already."""
    recorder: Recorder
    """Where chunks go."""
    workers: Executor
    """Threads that encode."""
    ahead: int
    """Jobs that are encoded, or wait to be stored, at once."""
    tally: Tally
    """What was done."""
    advance: Callable[[int], None]
    """Whom to tell."""

    def run(self, number: int) -> None:
        """Convert one raw cube."""
        source, part = self.plan.sources[number], self.plan.manifest.parts[number]
        cube = source.describe()
        pending = self._pending(cube, (part.first, 0, 0))
        first = next(pending, None)
        if first is not None:
            with source.open() as read_into:
                staging = stage(cube, self.plan.tiling, self.plan.manifest.chunks[0], read_into=read_into)
                tiles = TileReadAhead(staging, wanted=chain([first], pending), buffers=self.plan.tiling.buffers)
                self._convert(tiles)
        check_unchanged(part)

    def _pending(self, cube: RawCube, shift: tuple[int, int, int]) -> Iterator[_Pending]:
        """Yield what is left to do of each tile, and count what is done already."""
        tiling, widths = self.plan.tiling, self.plan.manifest.chunks[1:]
        groups = range(self.plan.channel_groups)
        # Channels may have chunks of their own: what is left is counted by chunks, not by voxels.
        voxel = cube.volume_shape[0] * cube.dtype.itemsize // len(groups)
        for tile in tiling.tiles():
            first = tuple((lo + by) // width for lo, by, width in zip(tile.start, shift, widths, strict=True))
            chunks = [(cut, (group, *cut.place(first))) for cut in cuts(tiling, tile.shape) for group in groups]
            missing = [one for one in chunks if not self.writer.has(one[1])]
            left = sum(cut.voxels for cut, _ in missing) * voxel
            done = tile.size * voxel * len(groups) - left
            if done:
                self.tally.resumed += done
                self.advance(done)
            if missing:
                yield _Pending(tile, missing, left)

    def _convert(self, tiles: TileReadAhead[_Pending]) -> None:
        """Convert what is left of tiles; threads go from one to the next without waiting for each other."""
        encode = Encode(self.plan.manifest)
        job = self.plan.tiling.job
        waiting: deque[_Waiting] = deque()

        def store() -> None:
            first = waiting.popleft()
            self.recorder.add(first.encoded.result(), first.nbytes)
            self.tally.chunks += len(first.encoded.result())
            if first.completes is not None:
                tiles.release()
                self.recorder.end_tile()
                self.advance(first.completes.nbytes)

        with tiles:
            try:
                tiles.start()
                while tiles.is_reading or waiting:
                    if not tiles.is_reading:
                        store()
                        continue
                    one, tile = tiles.next()
                    self.tally.read += tile.nbytes
                    for begin in range(0, len(one.chunks), job):
                        chunks = one.chunks[begin : begin + job]
                        pieces = [Piece(tile.voxels(cut, place[0]), place) for cut, place in chunks]
                        nbytes = sum(piece.voxels.nbytes for piece in pieces)
                        completes = one if begin + job >= len(one.chunks) else None
                        waiting.append(_Waiting(self.workers.submit(encode, pieces), nbytes, completes))
                        while len(waiting) > self.ahead:
                            store()
            finally:
                # Nobody may still look into a tile when its memory is given back.
                for left in waiting:
                    if not left.encoded.cancel():
                        left.encoded.exception()
