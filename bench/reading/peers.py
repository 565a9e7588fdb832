"""Peers: the rows of a table, each with the settings that are tried."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

import h5py
import numpy as np
import zarr
from zarr.core import codec_pipeline

from bench.harness.samples import Field
from bench.reading import hdf5, hdf5_processes
from bench.reading.contender import Entry, Job, Session, Setting, nothing, session_of
from voxload.benchmark.generate.storage import StoreFormat
from voxload.benchmark.loaders.block_loading import MappedArray, map_file
from voxload.benchmark.loaders.blocks import Slices
from voxload.benchmark.loaders.protocol import Volume
from voxload.benchmark.loaders.zarr_array import ZarrArray, zarrs_pipeline
from voxload.readers import open_reader
from voxload.readers.requests import Request, read_many
from voxload.readers.team import set_threads, team

PEERS = ("h5py", "h5py-direct", "h5py-processes", "numpy", "zarr", "zarr-fused", "zarrs", "tensorstore", "memcpy")
_FUSED = "FusedCodecPipeline"
_HAS_FUSED = hasattr(codec_pipeline, _FUSED)
_WORKERS = min(32, (os.cpu_count() or 1) + 4)
"""Threads in which zarr-python decodes, as many as where nothing is said. All arrays of a process share them, and the
first one that is opened decides: that must not be one that is told to let zarrs use a single thread."""
_PATIENCE = 30.0
"""Seconds that a helper thread has to start."""
_MODES = {"memmap": "memmap", "read": "default"}
"""How tensorstore's file driver gets bytes: by a map or by read calls."""


def absent(wanted: tuple[str, ...]) -> list[str]:
    """Return one line for each peer that was wanted and is not installed."""
    packages = [name for name in ("tensorstore", "zarrs") if name in wanted and find_spec(name) is None]
    lines = [f"{name}: {name} is not installed" for name in packages]
    if "zarr-fused" in wanted and not _HAS_FUSED:
        lines.append("zarr-fused: this version of zarr has no fused pipeline")
    return lines


def entries(job: Job, wanted: tuple[str, ...]) -> list[Entry]:
    """Return voxload and every wanted contender that can read the job's sample."""
    found = [*_voxload(job)]
    form = job.sample.volume.format
    if form == StoreFormat.HDF5:
        found += [*hdf5.entries(job), *hdf5_processes.entries(job)]
    if job.sample.chunk is None:
        found.append(Entry("numpy", "numpy memmap", 0, (Setting("", _map),)))
    if form == StoreFormat.ZARR3:
        found += [*_zarr(job), *_tensorstore(job)]
    if not job.case.is_cold:  # else there is nothing to copy from
        found.append(Entry("memcpy", "memcpy", 0, (Setting("", _copy),)))
    return [entry for entry in found if entry.peer in ("voxload", *wanted)]


def _on(title: str, threads: int) -> str:
    return f"{title}, {threads} thread{'s' * (threads > 1)}"


def _voxload(job: Job) -> Iterator[Entry]:
    """Yield one row for each number of threads."""
    for threads in job.threads:
        yield Entry("voxload", _on("voxload", threads), threads, (Setting("", partial(_open, threads=threads)),))


def _open(job: Job, threads: int) -> Session:
    """Open a reader, through public names."""
    reader = open_reader(job.sample.location)

    def prepare() -> None:
        """Set the number of threads, which holds for the whole process, and let each of them start."""
        if team().threads != threads:
            set_threads(threads)
            at_once = min(threads, len(os.sched_getaffinity(0)))  # no more of them ever work
            begun = threading.Barrier(at_once)
            team().run(partial(_meet, begun), range(at_once))

    def read() -> None:
        """Read all boxes at once, as tensorstore is asked to."""
        read_many(reader, [Request(box, job.out[index : index + 1]) for index, box in enumerate(job.case.boxes)])

    return Session(job.out, read, reader.close, prepare)


def _meet(begun: threading.Barrier, _: int) -> None:
    begun.wait(_PATIENCE)


def _map(job: Job) -> Session:
    """Map the voxels of a contiguous HDF5 dataset or of a ``.npy`` file, for copying boxes: ``out[...] = map[box]``."""
    volume = job.sample.volume
    return session_of(job, map_file(volume) if volume.format == StoreFormat.NPY else _map_dataset(volume))


def _map_dataset(volume: Volume) -> MappedArray:
    with h5py.File(volume.path, "r") as file:
        offset = file[volume.dataset].id.get_offset()
    return MappedArray(np.memmap(volume.path, volume.dtype, "r", offset, volume.shape))


def _copy(job: Job) -> Session:
    """Copy as many bytes, in the order of the buffer: the limit of the machine for one thread."""
    source = job.expected.copy()

    def read() -> None:
        ctypes.memmove(job.out.ctypes.data, source.ctypes.data, source.nbytes)

    return Session(job.out, read, nothing)


class SlicedZarr(ZarrArray):
    """Reads as most people write it: ``out[...] = array[box]``."""

    def fill(self, source: Slices, out: Field) -> None:
        """See ZarrArray."""
        out[...] = self._array[source]


def _zarr(job: Job) -> Iterator[Entry]:
    """Yield zarr-python's default pipeline, its fused one where the installed version has one, and that of zarrs."""
    with zarr.config.set({"threading.max_workers": _WORKERS}):
        zarr.open_array(job.sample.volume.path, mode="r")
    yield Entry("zarr", "zarr-python", 0, _both({}))
    for threads in job.threads:
        if _HAS_FUSED:
            fused = {
                "codec_pipeline.path": f"zarr.core.codec_pipeline.{_FUSED}",
                "codec_pipeline.max_workers": threads,
            }
            yield Entry("zarr-fused", _on("zarr-python fused", threads), threads, _both(fused))
        if find_spec("zarrs") is not None:
            yield Entry("zarrs", _on("zarrs pipeline", threads), threads, _both(zarrs_pipeline(threads)))


def _both(config: dict[str, Any]) -> tuple[Setting, ...]:
    """Return the two ways of filling a given buffer."""
    ways = {"slice": SlicedZarr, "out=": ZarrArray}
    return tuple(Setting(label, partial(_open_zarr, way=way, config=config)) for label, way in ways.items())


def _open_zarr(job: Job, way: type[ZarrArray], config: dict[str, Any]) -> Session:
    """Open an array; pipelines look at zarr's configuration while they read, so that setting it belongs to a read."""
    array, reads = way(job.sample.volume, config), job.reads()

    def read() -> None:
        with array.configured():
            for source, out in reads:
                array.fill(source, out)

    return Session(job.out, read, array.close)


def _tensorstore(job: Job) -> Iterator[Entry]:
    """Yield one row for each number of threads; modes and limits of reads are tried."""
    if find_spec("tensorstore") is None:
        return
    for threads in job.threads:
        settings = (
            Setting(f"{label}, {reads} reads", partial(_open_tensorstore, context=_context(mode, threads, reads)))
            for label, mode in _MODES.items()
            for reads in (threads, 4 * threads)
        )
        yield Entry("tensorstore", _on("tensorstore", threads), threads, tuple(settings))


def _context(mode: str, threads: int, reads: int) -> dict[str, Any]:
    return {
        "file_io_mode": {"mode": mode},
        "file_io_concurrency": {"limit": reads},
        "data_copy_concurrency": {"limit": threads},
        "cache_pool": {"total_bytes_limit": 0},
    }


def _open_tensorstore(job: Job, context: dict[str, Any]) -> Session:
    """Open an array; its driver decodes, and copies into the buffer that it is given."""
    import tensorstore  # noqa: PLC0415 - may be missing

    from voxload.benchmark.loaders.tensorstore_loading import open_array  # noqa: PLC0415 - imports the library

    limits = tensorstore.Context(context)
    array = open_array(job.sample.volume, limits)
    # Views of the source and of the buffer are made once: making them is no part of reading.
    pairs = [(tensorstore.array(out, context=limits), array[source]) for source, out in job.reads()]

    def read() -> None:
        """Ask for all boxes at once, then wait for all."""
        for done in [target.write(source) for target, source in pairs]:
            done.result()

    return Session(job.out, read, pairs.clear)
