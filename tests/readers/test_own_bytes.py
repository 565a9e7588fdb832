"""Own bytes: a rank of a (2, 2, 2) grid reads an eighth of a sample, counted by the system and not by us."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from types import ModuleType

import h5py
import pytest
import zarr

from tests.support import processes
from voxload.geometry import Box
from voxload.readers import Location, open_reader

BENCH = Path(__file__).parents[2] / "bench" / "own_bytes.py"

OVERHEAD = 48 * 1024
"""Bytes of superblock, chunk tables and metadata documents that a rank may read besides its chunks."""


def test_each_rank_reads_an_eighth(capsys: pytest.CaptureFixture[str]) -> None:
    """The claim of bench/own_bytes.py at 128^3 x 4, on two ranks of each format; blocks end where chunks end."""
    command = [sys.executable, str(BENCH), "--size", "128", "--ranks", "0", "5", "--json"]
    rows = json.loads(processes.run(command, capture_output=True, text=True, check=True).stdout)
    with capsys.disabled():
        for row in rows:
            share = row["read_bytes"] / row["stored_bytes"]
            sys.stdout.write(
                f"\n  {row['store']}, rank {row['rank']}: stored {row['stored_bytes']:,}, an eighth "
                f"{row['stored_bytes'] // 8:,}, planned {row['planned_bytes']:,}, read {row['read_bytes']:,}"
                f" ({share:.4f})"
            )
    assert [(row["store"][:4], row["rank"]) for row in rows] == [("HDF5", 0), ("HDF5", 5), ("Zarr", 0), ("Zarr", 5)]
    for row in rows:
        # Chunks of random counts differ a little in compressed size: one in a hundred is far more than they do.
        assert row["planned_bytes"] <= row["stored_bytes"] / 8 * 1.01
        assert row["planned_bytes"] <= row["read_bytes"] <= row["planned_bytes"] + OVERHEAD


TRACED = """
import sys, numpy
from voxload.geometry import Box
from voxload.readers import Location, open_reader
from voxload.readers.team import set_threads
set_threads(1)  # one call after the other: strace parts those that overlap
reader = open_reader(Location(sys.argv[1], "x"))
box = Box((0, 0, 0), (40, 40, 40))
out = numpy.empty((1, *box.shape), "<i2")
print("MARK", flush=True)
reader.cost(box)
print("MARK", flush=True)
reader.read_into(box, out)
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("kind", ["h5", "zarr"])
def test_a_box_off_the_chunk_grid_is_rounded_to_chunks(laws: ModuleType, tmp_path: Path, kind: str) -> None:
    """A box that ends inside chunks reads the chunks it touches, each once, and not a byte of another one."""
    stored = laws.voxels((96, 96, 96))
    path = tmp_path / f"x.{kind}"
    if kind == "h5":
        with h5py.File(path, "w") as file:
            # Fletcher-32 and no compression: chunks that nothing maps into memory, of a size known here.
            file.create_dataset("x", data=stored, chunks=(32, 32, 32), fletcher32=True)
    else:
        group = zarr.create_group(path)
        checksum = zarr.codecs.Crc32cCodec()
        group.create_array("x", data=stored, chunks=(32, 32, 32), shards=(96, 96, 96), compressors=checksum)
    reader = open_reader(Location(str(path), "x"))
    cost = reader.cost(Box((0, 0, 0), (40, 40, 40)))
    reader.close()
    assert cost.chunks == 8
    command = ["strace", "-f", "-y", "-e", "trace=read,pread64,preadv2,write", "-o", str(tmp_path / "trace")]
    processes.run([*command, sys.executable, "-c", TRACED, str(path)], capture_output=True, check=True)
    lines = (tmp_path / "trace").read_text().split("MARK", maxsplit=2)[2].splitlines()
    read = sum(int(line.rsplit("= ", 1)[1]) for line in lines if str(path) in line and "read" in line)
    index = 27 * 16 + 4 if kind == "zarr" else 0
    assert 8 * 32**3 * 2 <= read <= cost.stored_bytes + index + 8 * 8192  # zarr-python reads through 8 KiB buffers
