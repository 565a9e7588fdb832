"""Conversions that are killed, and conversions that meet: nothing is lost, nothing is mixed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from voxload.catalog import Catalog
from voxload.convert import ConvertOptions, ConvertReport, StoredFormat, convert
from voxload.convert.layout import plan_layout
from voxload.convert.ledger import Ledger
from voxload.convert.lock import LOCK_NAME
from voxload.convert.manifest import Manifest, SourceFile
from voxload.convert.sources.protocol import RawCube
from voxload.convert.tiles import plan_tiling
from voxload.convert.writer import ledger_name, temporary_name
from voxload.errors import UsageError
from voxload.geometry import Box
from voxload.readers.axes import AxisOrder

SHAPE = (210, 206, 208)
"""Extents of a cube just above the size of one shard: 8 shards, read in two slabs."""
SHARDS = 8
CHILD = """
import sys
from voxload.convert import ConvertOptions, StoredFormat, convert
src, dst, stored, stop = sys.argv[1:]
def show(progress):
    show.units += progress.bytes_done > show.done
    show.done = progress.bytes_done
    if show.units == int(stop):
        sys.stdout.write("reached\\n")
        sys.stdout.flush()
        sys.stdin.read()
show.units = show.done = 0
convert(src, dst, options=ConvertOptions(format=StoredFormat(stored)), progress=show)
sys.stdout.write("complete\\n")
"""
"""A conversion that says when it has written its STOPth unit and then waits until it is killed."""


@pytest.fixture(scope="module")
def cube() -> npt.NDArray[np.int32]:
    """Give a cube whose voxels encode their own coordinates."""
    return np.arange(np.prod(SHAPE), dtype="<i4").reshape(SHAPE)


@pytest.fixture
def source(tmp_path: Path, cube: npt.NDArray[np.int32]) -> Path:
    """Give the cube in a file."""
    np.save(tmp_path / "x.npy", cube)
    return tmp_path / "x.npy"


@contextmanager
def _stopped(source: Path, out: Path, stored: StoredFormat, unit: int) -> Iterator[subprocess.Popen[str]]:
    """Run a conversion in a process of its own up to a unit; it waits there, and is killed at the end."""
    command = [sys.executable, "-c", CHILD, str(source), str(out), stored.value, str(unit)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "reached\n"
            yield child
        finally:
            child.kill()
            child.wait(timeout=60)
    assert child.returncode == -signal.SIGKILL


def _check_complete(report: ConvertReport, cube: npt.NDArray[np.int32], *, found: Any) -> None:
    names = {path.name for path in report.catalog.parent.iterdir()}
    assert names - {LOCK_NAME} in ({"x.zarr", "catalog.parquet"}, {"x.h5", "catalog.parquet"})
    assert Catalog.read(report.catalog).samples == ("x",)
    np.testing.assert_array_equal(found[0], cube)


@pytest.mark.parametrize(("stored", "unit"), [("zarr", 1), ("zarr", 5), ("zarr", 8), ("hdf5", 40), ("hdf5", 96)])
def test_killed_and_run_again(
    tmp_path: Path, source: Path, cube: npt.NDArray[np.int32], *, stored: str, unit: int, converted: Any
) -> None:
    """A conversion killed after any unit leaves no result, and the next one ends equal, redoing no shard."""
    out = tmp_path / "out"
    with _stopped(source, out, StoredFormat(stored), unit):
        assert not [path for path in out.iterdir() if not path.name.startswith(".")]
    report = convert(source, out, options=ConvertOptions(format=StoredFormat(stored)))
    _check_complete(report, cube, found=converted(report.catalog, "x"))
    if stored == "zarr":
        # Two slabs of four shards: only slabs with an unwritten shard are read, only unwritten shards are written.
        assert report.bytes_read == {1: cube.nbytes, 5: cube.nbytes // 2, 8: 0}[unit]
        layout = plan_layout((1, *SHAPE), 4, is_sharded=True)
        shards = plan_tiling(layout, 4, slowest_first=(0, 1, 2), scratch_bytes=0, max_memory=2**29)
        units = [part for tile in shards.tiles() for part in shards.units(tile)]
        assert len(units) == SHARDS
        assert report.bytes_resumed == 4 * sum(part.size for part in units[:unit])


def test_killed_in_the_middle_of_a_write(
    tmp_path: Path, source: Path, cube: npt.NDArray[np.int32], converted: Any
) -> None:
    """A kill at whatever moment after the second shard loses at most the shard under way."""
    out = tmp_path / "out"
    code = CHILD.replace("sys.stdin.read()", "pass")
    command = [sys.executable, "-c", code, str(source), str(out), "zarr", "2"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "reached\n"
        child.kill()
    report = convert(source, out)
    assert report.skipped == ("x",) or report.bytes_resumed > 0
    _check_complete(report, cube, found=converted(report.catalog, "x"))


def test_strays_and_torn_lines_are_mended(
    tmp_path: Path, source: Path, cube: npt.NDArray[np.int32], converted: Any
) -> None:
    """What a kill or a power cut can leave, a half-written shard, a stray file, a torn line, does no harm."""
    out = tmp_path / "out"
    with _stopped(source, out, StoredFormat.ZARR, 3):
        pass
    shards = temporary_name(out / "x.zarr") / "volume/c/0/1/1"
    shards.mkdir(parents=True, exist_ok=True)
    (shards / "1").write_bytes(b"half a shard")
    (shards / "1.0123456789abcdef.partial").write_bytes(b"stray")
    with ledger_name(out / "x.zarr").open("a") as ledger:
        ledger.write("105 128")
    report = convert(source, out)
    assert report.bytes_resumed > 0
    assert not list((out / "x.zarr").rglob("*.partial"))
    _check_complete(report, cube, found=converted(report.catalog, "x"))


def test_changed_source_is_not_resumed(tmp_path: Path, source: Path, converted: Any) -> None:
    """What an interrupted run wrote of another state of the source is thrown away."""
    out = tmp_path / "out"
    with _stopped(source, out, StoredFormat.ZARR, 3):
        pass
    changed = np.full(SHAPE, 7, dtype="<i4")
    np.save(source, changed)
    os.utime(source, ns=(1, 1))
    report = convert(source, out)
    assert report.bytes_resumed == 0
    _check_complete(report, changed, found=converted(report.catalog, "x"))


def test_leftovers_of_a_complete_sample_are_removed(
    tmp_path: Path, source: Path, cube: npt.NDArray[np.int32], converted: Any
) -> None:
    """A run that was killed between the last rename and the last removal leaves nothing in the end."""
    report = convert(source, tmp_path / "out")
    ledger_name(tmp_path / "out/x.zarr").write_text("{}\n")
    again = convert(source, tmp_path / "out")
    assert again.skipped == ("x",)
    _check_complete(report, cube, found=converted(report.catalog, "x"))


def test_two_conversions_into_one_folder(
    tmp_path: Path, source: Path, cube: npt.NDArray[np.int32], converted: Any
) -> None:
    """The second is refused with the first one's process id; after the first is killed it takes over."""
    out = tmp_path / "out"
    with _stopped(source, out, StoredFormat.ZARR, 2) as child:
        with pytest.raises(UsageError, match=rf"another conversion into it, process {child.pid},"):
            convert(source, out)
        assert temporary_name(out / "x.zarr").exists()
    report = convert(source, out)
    assert report.bytes_resumed > 0
    assert not (out / LOCK_NAME).exists()
    _check_complete(report, cube, found=converted(report.catalog, "x"))


def test_ledger(tmp_path: Path) -> None:
    """A record is taken up only by the very conversion that wrote it, up to its last whole line."""
    cube = RawCube(tmp_path / "x.npy", "volume", shape=(4, 4, 4), order=AxisOrder("DHW"), dtype=np.dtype("i2"))
    layout = plan_layout((1, 4, 4, 4), 2, is_sharded=True)
    state = SourceFile("x.npy", "/somewhere/x.npy", 192, 1)
    manifest = Manifest.plan("x", state, cube=cube, layout=layout, stored=StoredFormat.ZARR)
    path = tmp_path / "ledger"
    assert not Ledger(path).resume(manifest)
    first = Ledger(path)
    first.start(manifest)
    first.add(Box((0, 0, 2), (1, 1, 3)))
    first.close()
    with path.open("a") as file:
        file.write("1 2")
    second = Ledger(path)
    assert second.resume(manifest)
    assert second.has(Box((0, 0, 2), (9, 9, 9)))
    second.add(Box((3, 3, 3), (4, 4, 4)))
    second.close()
    assert path.read_text().splitlines()[1:] == ["0 0 2", "3 3 3"]
    other = Manifest.plan("y", state, cube=cube, layout=layout, stored=StoredFormat.ZARR)
    assert not Ledger(path).resume(other)
    path.write_text("not a record\n")
    assert not Ledger(path).resume(manifest)
