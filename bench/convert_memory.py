"""Peak memory of a whole ``voxload convert``, and whether its result equals the source bit for bit.

Claim: a raw universe of 512^3 x 4 int16 (1 GiB) converts within 512 MiB of memory, interpreter and libraries
included, into Zarr and into HDF5.

Run: ``python bench/convert_memory.py [--extent 512] [--folder SCRATCH]``. Needs about 2.5 GiB of disk; the scratch
folder is removed at the end. The source is made slab by slab: counts whose density varies along the cube, as
compressible as a simulated universe's, and a seventh of it incompressible noise.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import zarr

from voxload.units import format_bytes

CHANNELS = 4
SLAB = 16
# VmHWM and not getrusage: the latter's peak begins with that of the process that started the child.
CHILD = """
import json, re, sys
from pathlib import Path
from voxload.convert import ConvertOptions, StoredFormat, convert
report = convert(sys.argv[1], sys.argv[2], options=ConvertOptions(format=StoredFormat(sys.argv[3])))
peak = 1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
print(json.dumps({"peak": peak, "seconds": report.seconds, "read": report.bytes_read, "written": report.bytes_written}))
"""


def slabs(extent: int) -> Iterator[tuple[int, np.ndarray[tuple[int, ...], np.dtype[np.int16]]]]:
    """Yield (first plane, voxels) of the source, the same at every call."""
    for first in range(0, extent, SLAB):
        rng = np.random.default_rng(first)
        shape = (min(SLAB, extent - first), extent, extent, CHANNELS)
        if first // SLAB % 7 == 3:
            yield first, rng.integers(-(2**15), 2**15, shape, dtype=np.int16)
        else:
            yield first, rng.poisson(0.2 + 3 * first / extent, shape).astype(np.int16)


def make_source(path: Path, extent: int) -> None:
    """Write a raw universe slab by slab."""
    with h5py.File(path, "w") as file:
        cube = file.create_dataset("full", (extent, extent, extent, CHANNELS), dtype="<i2")
        for first, voxels in slabs(extent):
            cube[first : first + len(voxels)] = voxels
        file["unitPar"] = np.array([0.1, -0.2, 0.3, -0.4], dtype=np.float32)


def is_equal(folder: Path, stored: str, extent: int) -> bool:
    """Compare the converted volume with the source's generator through h5py or zarr-python alone."""
    if stored == "hdf5":
        with h5py.File(folder / "universe.h5", "r") as file:
            return _equals(file["full"], extent)
    return _equals(zarr.open_array(folder / "universe.zarr" / "full", mode="r"), extent)


def _equals(volume: Any, extent: int) -> bool:
    planes = 4 * SLAB  # a chunk's, so that none is decoded twice
    held: list[Any] = []
    for first, voxels in slabs(extent):
        if first % planes == 0:
            held = [np.asarray(volume[:, first : first + planes])]
        if not np.array_equal(held[0][:, first % planes : first % planes + len(voxels)], voxels.transpose(3, 0, 1, 2)):
            return False
    return True


def main() -> int:
    """Convert into both formats and print a line for each; status 1 when a claim does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--extent", type=int, default=512)
    parser.add_argument("--folder", type=Path, help="where to make the scratch folder")
    options = parser.parse_args()
    is_kept = True
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        source = Path(scratch) / "universe.hdf5"
        make_source(source, options.extent)
        for stored in ("zarr", "hdf5"):
            folder = Path(scratch) / stored
            command = [sys.executable, "-c", CHILD, str(source), str(folder), stored]
            child = subprocess.run(command, check=True, capture_output=True, text=True, timeout=1800)
            figures = json.loads(child.stdout)
            equal = is_equal(folder, stored, options.extent)
            is_kept = is_kept and equal and figures["peak"] < 512 * 2**20
            print(
                f"{stored}: peak memory {format_bytes(figures['peak'])}, {figures['seconds']:.1f} s, "
                f"read {format_bytes(figures['read'])}, written {format_bytes(figures['written'])}, "
                f"equal bit for bit: {equal}"
            )
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main())
