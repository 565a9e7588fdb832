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

from bench import own_bytes
from tests.support import processes
from voxload.benchmark.cold.pagecache import evict
from voxload.geometry import Box
from voxload.readers import Location, open_reader

OVERHEAD = 48 * 1024
"""Bytes of superblock, chunk tables and metadata documents that a rank may read besides its chunks."""


@pytest.mark.long
@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.long), 5])
def test_each_rank_reads_an_eighth(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rank: int
) -> None:
    """The claim of bench/own_bytes.py at 128^3 x 4, for a rank of each format; blocks end where chunks end."""
    monkeypatch.setattr(sys, "argv", [own_bytes.__file__, "--size", "128", "--ranks", str(rank), "--json"])
    own_bytes.main()
    rows = json.loads(capsys.readouterr().out)
    with capsys.disabled():
        for row in rows:
            share = row["read_bytes"] / row["stored_bytes"]
            sys.stdout.write(
                f"\n  {row['store']}, rank {row['rank']}: stored {row['stored_bytes']:,}, an eighth "
                f"{row['stored_bytes'] // 8:,}, planned {row['planned_bytes']:,}, read {row['read_bytes']:,}"
                f" ({share:.4f})"
            )
    assert [(row["store"][:4], row["rank"]) for row in rows] == [("HDF5", rank), ("Zarr", rank)]
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
for path in sys.argv[1:]:
    reader = open_reader(Location(path, "x"))
    box = Box((0, 0, 0), (40, 40, 40))
    out = numpy.empty((1, *box.shape), "<i2")
    print("MARK", flush=True)
    reader.cost(box)
    print("MARK", flush=True)
    reader.read_into(box, out)
    print("MARK", flush=True)
"""


@pytest.mark.few_cases(2)
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("is_cold", [False, True], ids=["in memory", "dropped"])
def test_a_box_off_the_chunk_grid_is_rounded_to_chunks(laws: ModuleType, tmp_path: Path, *, is_cold: bool) -> None:
    """A box that ends inside chunks reads the chunks it touches, each once, and not a byte of another one."""
    stored = laws.voxels((96, 96, 96))
    paths = tmp_path / "x.h5", tmp_path / "x.zarr"
    with h5py.File(paths[0], "w") as file:
        # Fletcher-32 and no compression: chunks that nothing maps into memory, of a size known here.
        file.create_dataset("x", data=stored, chunks=(32, 32, 32), fletcher32=True)
    group = zarr.create_group(paths[1])
    checksum = zarr.codecs.Crc32cCodec()
    group.create_array("x", data=stored, chunks=(32, 32, 32), shards=(96, 96, 96), compressors=checksum)
    command = ["strace", "-f", "--seccomp-bpf", "-y", "-e", "trace=read,pread64,preadv2,write"]
    command += ["-o", str(tmp_path / "trace"), sys.executable, "-c", TRACED, *map(str, paths)]
    if is_cold:
        evict(file for file in tmp_path.rglob("*") if file.is_file())
    processes.run(command, capture_output=True, check=True)
    _, _, first, _, _, second, _ = (tmp_path / "trace").read_text().split("MARK")
    index = 27 * 16 + 4  # of the shard
    for path, trace, more in ((paths[0], first, 0), (paths[1], second, index)):
        reader = open_reader(Location(str(path), "x"))
        cost = reader.cost(Box((0, 0, 0), (40, 40, 40)))
        reader.close()
        assert cost.chunks == 8, path
        lines = [line for line in trace.splitlines() if str(path) in line and "read" in line]
        # Of a page that the system has dropped meanwhile, a look at it tells no more than that: -1 EAGAIN.
        results = [int(line.rsplit("= ", 1)[1].split()[0]) for line in lines]
        read = sum(result for result in results if result > 0)
        # zarr-python reads through 8 KiB buffers
        assert 8 * 32**3 * 2 <= read <= cost.stored_bytes + more + 8 * 8192, path
