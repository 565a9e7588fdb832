"""VolumeWriter: one volume on its way to its final name, step by step, taken up again after a kill."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from voxload.catalog.statistics import Statistics
from voxload.convert.manifest import Manifest, Members, SampleResult
from voxload.convert.storage.compression import Parts
from voxload.convert.storage.protocol import Place, StoredChunk, VolumeStorage
from voxload.convert.write.ledger import Ledger
from voxload.convert.write.spool import Spool, Unsynced
from voxload.errors import StorageError, VoxloadError
from voxload.files.atomic import TEMPORARY_MARK, publish, remove, sync
from voxload.files.records import is_own_folder

Figures = Mapping[int, Mapping[int, Statistics]]
"""Figures of voxels, by the number of their sample and their channel."""


@dataclass(slots=True)
class _State:
    """What is stored of the volume, by this run or an earlier one."""

    chunks: dict[Place, StoredChunk]
    """Every stored chunk."""
    figures: defaultdict[int, dict[int, Statistics]]
    """Figures of the stored voxels, step after step."""


class VolumeWriter:
    """Writes one volume; for one thread, and a few of its own that write and flush.

    Until `commit` returns, nothing of the volume is visible under its final name. A refusing storage raises
    StorageError; what was recorded until then is kept for the next run.

    Parameters
    ----------
    final
        The volume's final path.
    manifest
        What is written.
    storage
        How it is stored.
    """

    def __init__(self, final: Path, manifest: Manifest, *, storage: VolumeStorage) -> None:
        self._final, self._manifest, self._storage = final, manifest, storage
        self._folder = temporary_name(final)
        self._ledger = Ledger(ledger_name(final))
        self._spool = Spool(self._folder, storage.file_name)
        self._members = Members(manifest.members)
        self._state = _State({}, defaultdict(dict))
        self._fresh: list[tuple[Place, StoredChunk]] = []
        self._flusher = ThreadPoolExecutor(1, thread_name_prefix="voxload-flush")
        self._flushing: Future[None] | None = None

    @classmethod
    @contextmanager
    def open(cls, final: Path, manifest: Manifest, *, storage: VolumeStorage) -> Iterator[VolumeWriter]:
        """Take up an interrupted volume, or start it; an exception leaves what was recorded for the next run."""
        writer = cls(final, manifest, storage=storage)
        try:
            with writing(final):
                writer._begin()
            yield writer
        finally:
            writer._flusher.shutdown(wait=True)
            writer._spool.close()
            writer._ledger.close()

    def has(self, place: Place) -> bool:
        """Tell whether a chunk is recorded as stored, by this run or an earlier one."""
        return place in self._state.chunks

    def append(self, chunks: Sequence[tuple[Place, Parts]]) -> None:
        """Write encoded chunks; they are written when `checkpoint` or `commit` has recorded them."""
        numbers = [self._storage.file_of(place) for place, _ in chunks]
        with writing(self._final):
            offsets = self._spool.append(list(zip(numbers, (data for _, data in chunks), strict=True)))
        for (place, data), number, offset in zip(chunks, numbers, offsets, strict=True):
            self._fresh.append((place, StoredChunk(number, offset, sum(map(len, data)))))

    def checkpoint(self, figures: Figures) -> None:
        """Record what was appended since the last time, once it is flushed; the flush goes on meanwhile.

        `figures` are those of the voxels in these very chunks.
        """
        with writing(self._final):
            self._wait()
            step = _step(self._fresh, figures)
            self._flushing = self._flusher.submit(self._record, self._spool.unsynced(), step)
        self._keep(step)
        self._fresh = []

    def commit(self) -> Manifest:
        """Give the volume its manifest and its final name; return the manifest."""
        with writing(self._final):
            self._wait()
            self._spool.close()
            chunks, size = self._state.chunks, self._storage.size(self._folder, self._state.chunks)
            complete = replace(self._manifest, results=self._results(chunks), stored_bytes=size)
            finished = self._storage.finish(self._folder, chunks, complete)
            _publish(finished, self._final)
            self._ledger.remove()
            remove(self._folder)
        return complete

    def discard(self) -> None:
        """Remove what was written."""
        self._flusher.shutdown(wait=True)
        self._spool.close()
        self._ledger.remove()
        remove(self._folder)

    def _begin(self) -> None:
        # A link under the name of the unfinished volume is nobody's work, and would lead the writing elsewhere.
        is_there = is_own_folder(self._folder)
        steps = self._ledger.resume(self._manifest.identity()) if is_there else None
        if steps is None:
            self._ledger.remove()  # first: it must not tell of chunks that a new folder lacks
            remove(self._folder)
            self._storage.create(self._folder)
            sync(self._folder)  # a power cut must leave no record without it
            self._ledger.start(self._manifest.identity())
            return
        for step in steps:
            self._keep(step)
        ends: defaultdict[int, int] = defaultdict(int)
        for chunk in self._state.chunks.values():
            ends[chunk.file] = max(ends[chunk.file], chunk.offset + chunk.length)
        self._spool.resume(ends)

    def _record(self, unsynced: Unsynced, step: dict[str, Any]) -> None:
        unsynced.sync()
        self._ledger.add(step)

    def _wait(self) -> None:
        """Wait for the flush under way, and raise what it raised."""
        if self._flushing is not None:
            flushing, self._flushing = self._flushing, None
            flushing.result()

    def _keep(self, step: dict[str, Any]) -> None:
        """Take a recorded step into the state."""
        for c, d, h, w, file, offset, length in step["chunks"]:
            self._state.chunks[c, d, h, w] = StoredChunk(file, offset, length)
        for number, channel, values in step["figures"]:
            channels = self._state.figures[number]
            channels[channel] = channels.get(channel, Statistics()) + Statistics.from_json(values)

    def _results(self, chunks: Mapping[Place, StoredChunk]) -> tuple[SampleResult, ...]:
        sizes = [0] * len(self._manifest.members)
        widths = self._manifest.chunks[1:]
        for place, chunk in chunks.items():
            start = tuple(index * width for index, width in zip(place[1:], widths, strict=True))
            sizes[self._members.at(start)] += chunk.length
        return tuple(
            SampleResult(size, tuple(found.to_json() for _, found in sorted(self._state.figures[number].items())))
            for number, size in enumerate(sizes)
        )


def _step(chunks: Sequence[tuple[Place, StoredChunk]], figures: Figures) -> dict[str, Any]:
    """Return the ledger's line of what was appended."""
    return {
        "chunks": [[*place, chunk.file, chunk.offset, chunk.length] for place, chunk in chunks],
        "figures": [
            [number, channel, found.to_json()]
            for number, channels in figures.items()
            for channel, found in channels.items()
        ],
    }


def temporary_name(final: Path) -> Path:
    """Return the temporary name of a volume: always the same, so that a later run finds what a killed one left.

    Two processes cannot meet under it: whoever writes holds the volume's lock, see `voxload.convert.write.volume`.
    """
    return final.with_name(f".{final.name}{TEMPORARY_MARK}convert")


def ledger_name(final: Path) -> Path:
    """Return the name of the record of an unfinished volume."""
    return final.with_name(f"{temporary_name(final).name}.progress")


def remove_leftovers(final: Path) -> None:
    """Remove what a run left that was killed when its volume had just become complete."""
    remove(temporary_name(final))
    remove(ledger_name(final))


def _publish(temporary: Path, final: Path) -> None:
    """Flush a complete volume and rename it to its final name, in place of an outdated one."""
    sync(temporary)
    publish(temporary, final)  # a process killed on the way is followed by one that finds the complete volume again


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the system raises while `path` is written into a StorageError of one line."""
    try:
        yield
    except VoxloadError:
        raise
    except OSError as error:
        text = os.strerror(error.errno) if error.errno else str(error).splitlines()[0]
        raise StorageError(
            f"writing {path}",
            found=text,
            remedy="make room or mend the storage, then run the same command again: complete samples are kept",
        ) from error
