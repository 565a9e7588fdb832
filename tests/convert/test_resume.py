"""Conversions that are killed, and conversions that meet: nothing is lost, nothing is mixed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.support import scripts
from voxload.catalog.table import Catalog
from voxload.convert import ConvertOptions, ConvertReport, StoredFormat, convert
from voxload.convert.plan.tiles import LIBRARY_BYTES
from voxload.convert.write.ledger import Ledger
from voxload.convert.write.lock import LOCK_NAME
from voxload.convert.write.writer import ledger_name, temporary_name
from voxload.errors import StorageError, UsageError
from voxload.files.atomic import TEMPORARY_MARK

SHAPE = (210, 206, 208)
"""Extents of a cube of 96 chunks, read in six slabs."""
TILES, CHUNKS = 6, 96
CHILD = """
import sys
from voxload.convert import ConvertOptions, StoredFormat, convert
src, dst, stored, stop = sys.argv[1:]
def show(progress):
    show.tiles += progress.bytes_done > show.done
    show.done = progress.bytes_done
    if show.tiles == int(stop):
        sys.stdout.write("reached\\n")
        sys.stdout.flush()
        sys.stdin.read()
show.tiles = show.done = 0
convert(src, dst, options=ConvertOptions(format=StoredFormat(stored)), progress=show)
sys.stdout.write("complete\\n")
"""
"""A conversion that says when it has stored its STOPth slab and then waits until it is killed."""

REPLACING = """
import sys
from pathlib import Path
from voxload.files.atomic import replacing
with replacing(Path(sys.argv[1])) as temporary:
    temporary.write_text("half")
    sys.stdout.write("reached\\n")
    sys.stdout.flush()
    sys.stdin.read()
"""
"""What writes half a file and then waits until it is killed."""


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
def _stopped(source: Path, out: Path, stored: StoredFormat, unit: int) -> Iterator[scripts.Script]:
    """Run a conversion in a process of its own up to a unit; it waits there, and is killed at the end."""
    with scripts.started(CHILD, source, out, stored.value, str(unit)) as child:
        try:
            assert child.stdout.readline() == "reached\n"
            yield child
        finally:
            child.kill()
            child.wait()
    assert child.returncode == -signal.SIGKILL


def _check_complete(report: ConvertReport, cube: npt.NDArray[np.int32], *, found: Any) -> None:
    names = {path.name for path in report.catalog.parent.iterdir()}
    assert names - {LOCK_NAME, "catalog.checksums.parquet"} in (
        {"x.zarr", "catalog.parquet"},
        {"x.h5", "catalog.parquet"},
    )
    assert Catalog.read(report.catalog).samples == ("x",)
    np.testing.assert_array_equal(found[0], cube)


@pytest.mark.parametrize(
    ("stored", "tile"),
    [
        ("zarr", 3),
        ("hdf5", 6),
        *(pytest.param(*case, marks=pytest.mark.long) for case in [("zarr", 1), ("zarr", 6), ("hdf5", 2)]),
    ],
)
def test_killed_and_run_again(
    tmp_path: Path, source: Path, cube: npt.NDArray[np.int32], *, stored: str, tile: int, converted: Any
) -> None:
    """A conversion killed after any slab leaves no result, and the next one ends equal, redoing no recorded slab."""
    out = tmp_path / "out"
    with _stopped(source, out, StoredFormat(stored), tile):
        assert not [path for path in out.iterdir() if not path.name.startswith(".")]
    # The flush of the last slab may be under way when its process is killed.
    recorded = _recorded(out, stored)
    assert recorded in {(tile - 1) * CHUNKS // TILES, tile * CHUNKS // TILES}
    report = convert(source, out, options=ConvertOptions(format=StoredFormat(stored)))
    _check_complete(report, cube, found=converted(report.catalog, "x"))
    assert report.chunks == CHUNKS - recorded
    assert report.bytes_read + report.bytes_resumed == cube.nbytes


def _recorded(out: Path, stored: str) -> int:
    """Return how many chunks the record of an unfinished volume names."""
    copy = out.parent / "ledger"  # it is cut behind its last whole line when it is taken up
    copy.write_bytes(ledger_name(out / f"x{StoredFormat(stored).suffix}").read_bytes())
    with closing(Ledger(copy)) as ledger:
        steps = ledger.resume(json.loads(copy.read_bytes().splitlines()[0]))
    assert steps is not None
    return sum(len(step["chunks"]) for step in steps)


@pytest.mark.long
def test_torn_lines_and_unrecorded_bytes_are_mended(
    tmp_path: Path, source: Path, cube: npt.NDArray[np.int32], converted: Any
) -> None:
    """What a kill or a power cut can leave does no harm: half a chunk that nothing records, a torn line."""
    out = tmp_path / "out"
    with _stopped(source, out, StoredFormat.ZARR, 3):
        pass
    (shard,) = (path for path in (temporary_name(out / "x.zarr") / "volume/c").rglob("*") if path.is_file())
    with shard.open("ab") as file:
        file.write(b"half a chunk")
    with ledger_name(out / "x.zarr").open("a") as ledger:
        ledger.write('{"chunks": [[0, 3,')
    report = convert(source, out)
    assert report.bytes_resumed > 0
    _check_complete(report, cube, found=converted(report.catalog, "x"))


@pytest.mark.parametrize("left", [0, 1000])
def test_lost_bytes_are_noticed(tmp_path: Path, source: Path, left: int) -> None:
    """A file that is shorter than its record, or gone, is an error that says what to do, not a volume with holes."""
    out = tmp_path / "out"
    with _stopped(source, out, StoredFormat.ZARR, 3):
        pass
    (shard,) = (path for path in (temporary_name(out / "x.zarr") / "volume/c").rglob("*") if path.is_file())
    os.truncate(shard, left) if left else shard.unlink()
    with pytest.raises(StorageError, match=rf"found {left} bytes, expected the .* remove .*x\.zarr\.partial-convert"):
        convert(source, out)


@pytest.mark.long
def test_more_memory_goes_on_where_less_ended(
    tmp_path: Path, source: Path, cube: npt.NDArray[np.int32], converted: Any
) -> None:
    """A run that reads other tiles than the killed one still converts no recorded chunk again."""
    out = tmp_path / "out"
    with _stopped(source, out, StoredFormat.ZARR, 3):
        pass
    recorded = _recorded(out, "zarr")
    report = convert(source, out, options=ConvertOptions(max_memory=LIBRARY_BYTES + 2**25))
    assert report.chunks == CHUNKS - recorded
    _check_complete(report, cube, found=converted(report.catalog, "x"))


@pytest.mark.long
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


@pytest.mark.long
def test_leftovers_of_a_complete_sample_are_removed(
    tmp_path: Path, source: Path, cube: npt.NDArray[np.int32], converted: Any
) -> None:
    """A run that was killed between the last rename and the last removal leaves nothing in the end."""
    report = convert(source, tmp_path / "out")
    ledger_name(tmp_path / "out/x.zarr").write_text("{}\n")
    again = convert(source, tmp_path / "out")
    assert again.skipped == ("x",)
    _check_complete(report, cube, found=converted(report.catalog, "x"))


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("name", ["catalog.parquet", "catalog.checksums.parquet", f".x.zarr{TEMPORARY_MARK}checksums"])
def test_what_was_replaced_when_it_was_killed_is_removed(
    tmp_path: Path, source: Path, cube: npt.NDArray[np.int32], converted: Any, name: str
) -> None:
    """A file that a killed process was about to put into place has a name that no later process takes by itself."""
    out, options = tmp_path / "out", ConvertOptions(checksums=True)
    convert(source, out, options=options)
    with scripts.started(REPLACING, out / name) as child:
        assert child.stdout.readline() == "reached\n"
        child.kill()
        child.wait()
    assert len(list(out.glob(f".*{TEMPORARY_MARK}*"))) == 1
    report = convert(source, out, options=options)
    _check_complete(report, cube, found=converted(report.catalog, "x"))


@pytest.mark.long
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
    path = tmp_path / "ledger"
    assert Ledger(path).resume({"of": "x"}) is None
    first = Ledger(path)
    first.start({"of": "x"})
    first.add({"chunks": [1, 2]})
    first.close()
    with path.open("a") as file:
        file.write('{"chunks": [3')
    second = Ledger(path)
    assert second.resume({"of": "x"}) == [{"chunks": [1, 2]}]
    second.add({"chunks": [4]})
    second.close()
    third = Ledger(path)
    assert third.resume({"of": "x"}) == [{"chunks": [1, 2]}, {"chunks": [4]}]
    third.close()
    assert Ledger(path).resume({"of": "y"}) is None
    path.write_text("not a record\n")
    assert Ledger(path).resume({"of": "x"}) is None
