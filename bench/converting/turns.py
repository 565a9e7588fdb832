"""Turns: the work of contenders, as ``python -m bench.converting.turns NAME SOURCE RESULT WORD...`` each.

Each turn prints a line of JSON: seconds, of which on cores, the process's peak memory, and bytes moved. What a turn
needs is imported in it, and outside of the clock: the memory of one holds none of another's libraries, and rechunker's
Python has neither voxload's libraries nor a zarr of today.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

_PIECE = 2 * 2**20
"""Bytes that are copied at a time; pieces of 1 and 4 MiB take the same time."""
_SHUFFLES = {"shuffle": 1, "bitshuffle": 2}
_MOVED = {"rchar": "read", "wchar": "written", "read_bytes": "device_read", "write_bytes": "device_written"}
"""What the system calls the bytes that a process asked of it, cached or not, and those that reached the device."""


def converting(source: str, result: str, *words: str) -> None:
    """Convert with voxload and as many threads as there are cores: FORMAT CHUNKS COMPRESSION MEMORY.

    Empty CHUNKS are voxload's own.
    """
    from voxload.convert import Compression, ConvertOptions, StoredFormat, convert

    stored, chunk, compression, memory = words
    options = ConvertOptions(
        format=StoredFormat(stored),
        chunks=(int(chunk),) * 3 if chunk else None,
        compression=Compression(compression),
        max_memory=int(memory),
    )
    with metered():
        convert(source, result, options=options)


def copying(source: str, result: str, compression: str) -> None:
    """Read every file of a folder in order, compress pieces, and write them one behind the other into one file.

    Each thread reads into a buffer of its own, compresses without the interpreter lock and writes to the next free
    place: no thread waits for another.
    """
    compress = _compressor(compression)
    cores = len(os.sched_getaffinity(0))
    lock = threading.Lock()
    end = 0
    with metered():
        files = [os.open(path, os.O_RDONLY) for path in sorted(Path(source).iterdir())]
        out = os.open(result, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        sizes = [os.fstat(file).st_size for file in files]
        pieces = (
            (file, offset, min(_PIECE, size - offset))
            for file, size in zip(files, sizes, strict=True)
            for offset in range(0, size, _PIECE)
        )

        def copy(buffer: memoryview) -> None:
            nonlocal end
            while True:
                with lock:
                    piece = next(pieces, None)
                if piece is None:
                    return
                file, offset, size = piece
                if os.preadv(file, [buffer[:size]], offset) != size:
                    raise OSError("a short read")
                data = compress(buffer[:size])
                with lock:
                    place, end = end, end + len(data)
                os.pwrite(out, data, place)

        with ThreadPoolExecutor(cores) as pool:
            list(pool.map(copy, [memoryview(bytearray(_PIECE)) for _ in range(cores)]))  # raises what one has raised
        os.fdatasync(out)


def _compressor(compression: str) -> Callable[[memoryview], bytes]:
    """Return what compresses as a conversion to Zarr does, by the same library in one thread; many may call it."""
    import imagecodecs
    import numpy as np

    from voxload.convert.storage.compression import Compression, ZarrEncoder

    blosc = ZarrEncoder(Compression(compression), np.dtype(np.int16)).codecs[0].to_dict()["configuration"]
    encode: Callable[..., Any] = partial(
        imagecodecs.blosc_encode,
        level=blosc["clevel"],
        compressor=blosc["cname"],
        shuffle=_SHUFFLES[blosc["shuffle"]],
        numthreads=1,
    )
    # imagecodecs takes the width of an element from the array, whatever it is told beside.
    return lambda piece: encode(np.frombuffer(piece, np.uint8 if len(piece) % 2 else np.int16))


def looping(source: str, result: str, chunk: str, shards: str) -> None:
    """Write (C, D, H, W) from (D, H, W, C) with zarr-python, by slabs of planes: one for each row of shards or chunks.

    `shards` are extents d,h,w, or empty for chunks in files of their own. zarr-python encodes in a thread for each
    core, and blosc in one thread each, which is faster than two of its own.
    """
    import h5py
    import numcodecs.blosc
    import zarr

    from voxload.convert.storage.compression import Compression, ZarrEncoder

    extents = [int(extent) for extent in shards.split(",")] if shards else [int(chunk)] * 3
    numcodecs.blosc.use_threads = False
    cores = len(os.sched_getaffinity(0))
    with metered(), zarr.config.set({"threading.max_workers": cores, "async.concurrency": 4 * cores}):
        with h5py.File(next(Path(source).iterdir()), "r") as file:
            cube = file["full"]
            depth, height, width, channels = cube.shape
            volume = zarr.create_array(
                result,
                shape=(channels, depth, height, width),
                chunks=(channels, *[int(chunk)] * 3),
                shards=(channels, *extents) if shards else None,
                dtype=cube.dtype,
                compressors=ZarrEncoder(Compression.LZ4, cube.dtype).codecs,
            )
            for first in range(0, depth, extents[0]):
                planes = cube[first : first + extents[0]]
                volume[:, first : first + extents[0]] = planes.transpose(3, 0, 1, 2)
        _flush(Path(result))


def rechunking(source: str, result: str, chunk: str, memory: str) -> None:
    """Write chunks (d, h, w, C), a file each, with rechunker from planes of dask; zarr 2 has no shards.

    rechunker 0.5 calls functions that zarr-python 3 no longer has.
    """
    import dask.array
    import h5py
    import numcodecs

    extent = int(chunk)
    numcodecs.blosc.use_threads = False
    codec = numcodecs.Blosc(cname="lz4", clevel=5, shuffle=numcodecs.Blosc.BITSHUFFLE)
    rechunk: Any = importlib.import_module("rechunker").rechunk
    from_array: Any = dask.array.from_array
    with metered():
        with h5py.File(next(Path(source).iterdir()), "r") as file:
            cube = file["full"]
            planes = from_array(cube, chunks=(extent, *cube.shape[1:]))
            plan = rechunk(
                planes,
                target_chunks=(extent, extent, extent, cube.shape[3]),
                max_mem=int(memory) // 2,
                target_store=f"{result}/full.zarr",
                temp_store=f"{result}/between.zarr",
                target_options={"compressor": codec},
            )
            with dask.config.set(scheduler="threads", num_workers=len(os.sched_getaffinity(0))):
                plan.execute()
        _flush(Path(result))


def repacking(source: str, result: str, chunk: str) -> None:
    """Write chunks (d, h, w, C) with h5repack, shuffled and deflated at level 1 with a checksum, as voxload's are.

    The peak is ru_maxrss, which begins with that of this process, 10 MiB, so small that it is no matter: the memory of
    a process that has ended is not listed in /proc any more. What it moved still is, until it is waited for.
    """
    layout = "x".join([chunk] * 3 + ["4"])
    filters = [word for name in ("SHUF", "GZIP=1", "FLET") for word in ("-f", f"full:{name}")]
    path = next(Path(source).iterdir())
    program = shutil.which("h5repack") or "h5repack"
    started = time.perf_counter()
    child = subprocess.Popen([program, "-l", f"full:CHUNK={layout}", *filters, str(path), result])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    moved = _moved(str(child.pid))
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, child.args)
    _flush(Path(result))
    seconds = time.perf_counter() - started
    cpu, peak = usage.ru_utime + usage.ru_stime, 1024 * usage.ru_maxrss
    print(json.dumps({"seconds": seconds, "cpu": cpu, "peak": peak, **moved}))


@contextmanager
def metered() -> Iterator[None]:
    """Print what the block costs this process, once it has ended without an error."""
    before, spent, started = _moved("self"), time.process_time(), time.perf_counter()
    yield
    seconds, spent, after = time.perf_counter() - started, time.process_time() - spent, _moved("self")
    # VmHWM and not getrusage: the latter's peak begins with that of the process that started this one.
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    if found is None:
        raise RuntimeError("no VmHWM in /proc/self/status: a Linux kernel is needed")
    moved = {name: after[name] - before[name] for name in after}
    print(json.dumps({"seconds": seconds, "cpu": spent, "peak": 1024 * int(found[1]), **moved}))


def _moved(process: str) -> dict[str, int]:
    """Return what a process has read and written so far. Source: proc(5), /proc/pid/io."""
    numbers = dict(line.split(": ") for line in Path(f"/proc/{process}/io").read_text().splitlines())
    return {name: int(numbers[kept]) for kept, name in _MOVED.items()}


def _flush(result: Path) -> None:
    """Flush a file, or every file below a folder, to the device before the clock stops."""
    for path in [result] if result.is_file() else result.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)


_TURNS: Mapping[str, Callable[..., None]] = {
    turn.__name__: turn for turn in (converting, copying, looping, rechunking, repacking)
}


def main(name: str, *words: str) -> None:
    """Take a turn."""
    _TURNS[name](*words)


if __name__ == "__main__":
    main(*sys.argv[1:])
