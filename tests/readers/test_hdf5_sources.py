"""Virtual and external HDF5 datasets: what h5py reads, and an error wherever h5py would fill in."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxload.errors import DataError, UsageError, VoxloadError
from voxload.geometry import Box
from voxload.readers import Location, open_reader
from voxload.readers.hdf5.mapping import BoxIndex, uncovered
from voxload.readers.hdf5.sources import find_source

pytestmark = pytest.mark.usefixtures("no_leaks")

CUBE = np.arange(1, 513, dtype="<i2").reshape(8, 8, 8)
HALVES = ("a.h5", "b.h5")
Array = np.ndarray[Any, Any]


def write(path: Path, values: Array, **options: Any) -> None:
    """Write a file of one dataset "x"."""
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=values, **options)


def link(path: Path, layout: h5py.VirtualLayout, fill: int = -9) -> Location:
    """Write a virtual dataset "x"."""
    with h5py.File(path, "a") as file:
        file.create_virtual_dataset("x", layout, fillvalue=fill)
    return Location(str(path), "x")


def halves(folder: Path, *, chunks: tuple[int, ...] | None = None, stop: int = 8) -> Location:
    """Write a cube whose halves lie in two files; planes from `stop` on have no source."""
    layout = h5py.VirtualLayout((8, 8, 8), "<i2")
    for name, start in zip(HALVES, (0, 4), strict=True):
        write(folder / name, CUBE[start : start + 4], chunks=chunks)
        end = min(start + 4, stop)
        layout[start:end] = h5py.VirtualSource(name, "x", (4, 8, 8))[: end - start]
    return link(folder / "v.h5", layout)


def images(folder: Path) -> Location:
    """Write a cube whose slices are datasets of two axes in one file, in reverse order, of a smaller type."""
    layout = h5py.VirtualLayout((8, 8, 8), "<i4")
    with h5py.File(folder / "images.h5", "w") as file:
        for number, image in enumerate(CUBE):
            file.create_dataset(f"g/{number}", data=image, dtype=">i2", chunks=(3, 5), compression="gzip")
            layout[number] = h5py.VirtualSource("images.h5", f"g/{number}", (8, 8))
    return link(folder / "v.h5", layout)


def crops(folder: Path) -> Location:
    """Write a cube of eight boxes that lie elsewhere in one larger dataset of the same file."""
    big = np.zeros((12, 10, 9), "<i2")
    layout = h5py.VirtualLayout((8, 8, 8), "<i2")
    source = h5py.VirtualSource(".", "big", big.shape)
    for d, h, w in np.ndindex(2, 2, 2):
        at = (slice(5 * d, 5 * d + 4), slice(5 * h, 5 * h + 4), slice(5 * w, 5 * w + 4))
        to = tuple(slice(4 * i, 4 * i + 4) for i in (d, 1 - h, w))
        big[at] = CUBE[to]
        layout[to] = source[at]
    with h5py.File(folder / "v.h5", "w") as file:
        file["big"] = big
    return link(folder / "v.h5", layout)


def nested(folder: Path) -> Location:
    """Write a virtual dataset of a virtual dataset in another folder, of which one half is external storage."""
    (folder / "deep").mkdir()
    halves(folder / "deep")
    raw = folder / "deep" / "half.raw"
    raw.write_bytes(b"head" + CUBE[4:].tobytes())
    with h5py.File(folder / "deep" / "b.h5", "w") as file:
        file.create_dataset("x", (4, 8, 8), "<i2", external=[(str(raw), 4, 512)])
    layout = h5py.VirtualLayout((8, 8, 8), "<i2")
    layout[:] = h5py.VirtualSource("deep/v.h5", "x", (8, 8, 8))
    return link(folder / "v.h5", layout)


def external(folder: Path) -> Location:
    """Write a cube whose bytes lie in two raw files, the second of unlimited size."""
    parts = [folder / "a.raw", folder / "b.raw"]
    parts[0].write_bytes(CUBE.tobytes()[:300])
    parts[1].write_bytes(b"header" + CUBE.tobytes()[300:])
    with h5py.File(folder / "v.h5", "w") as file:
        listed = [(str(parts[0]), 0, 300), (str(parts[1]), 6, h5py.h5f.UNLIMITED)]
        file.create_dataset("x", (8, 8, 8), "<i2", external=listed)
    return Location(str(folder / "v.h5"), "x")


LAYOUTS: dict[str, tuple[Callable[[Path], Location], str]] = {
    "halves": (halves, "h5py: virtual dataset of 2 sources"),
    "images": (images, "h5py: virtual dataset of 8 sources"),
    "crops": (crops, "h5py: virtual dataset of 8 sources"),
    "nested": (nested, "h5py: virtual dataset of 1 sources"),
    "external": (external, "h5py: external storage"),
}


def outcome(location: Location, missing: str = "error") -> tuple[type[VoxloadError] | None, str]:
    """Open and read a whole volume; return what was raised."""
    try:
        read(location, missing)
    except VoxloadError as error:
        return type(error), str(error)
    return None, ""


def read(location: Location, missing: str = "error") -> Array:
    """Read a whole volume."""
    reader = open_reader(location, missing=missing)
    try:
        out = np.empty(reader.describe().shape, reader.describe().native_dtype)
        reader.read_into(reader.describe().whole, out)
    finally:
        reader.close()
    volume: Array = out[0]
    return volume


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_is_what_h5py_reads(laws: ModuleType, tmp_path: Path, name: str) -> None:
    """A dataset whose sources are all there is a Reader, equal to plain h5py's, and says its route."""
    make, route = LAYOUTS[name]
    location = make(tmp_path)
    with h5py.File(location.path) as file:
        stored = file["x"][...]
    assert np.array_equal(stored, CUBE)
    reader = open_reader(location)
    try:
        assert reader.describe().route == route
        assert reader.describe().chunks is None
        laws.check_reader(reader, stored[np.newaxis])
    finally:
        reader.close()


def remove(folder: Path) -> None:
    """Remove a source."""
    (folder / "b.h5").unlink()


def rename(folder: Path) -> None:
    """Give a source's dataset another name."""
    with h5py.File(folder / "b.h5", "a") as file:
        file.move("x", "y")


def shrink(folder: Path) -> None:
    """Write a source anew with fewer planes."""
    write(folder / "b.h5", CUBE[:3])


def widen(folder: Path) -> None:
    """Write a source anew with a type that does not fit."""
    write(folder / "b.h5", CUBE[:4].astype("<i8"))


def leave_unwritten(folder: Path) -> None:
    """Write a source anew, but for one chunk."""
    with h5py.File(folder / "b.h5", "w") as file:
        file.create_dataset("x", (4, 8, 8), "<i2", chunks=(4, 4, 8), fillvalue=5)[:, :4] = CUBE[4:, :4]


def leave_unallocated(folder: Path) -> None:
    """Write a source anew without any value."""
    with h5py.File(folder / "b.h5", "w") as file:
        file.create_dataset("x", (4, 8, 8), "<i2", fillvalue=5)


def damage(folder: Path) -> None:
    """Make a source no HDF5 file."""
    (folder / "b.h5").write_bytes(b"nothing of the kind")


def redirect(folder: Path) -> None:
    """Make a source a link to another file."""
    with h5py.File(folder / "b.h5", "w") as file:
        file["x"] = h5py.ExternalLink("a.h5", "x")


def close_circle(folder: Path) -> None:
    """Make a source a virtual dataset of the dataset that it is a source of."""
    layout = h5py.VirtualLayout((4, 8, 8), "<i2")
    layout[:] = h5py.VirtualSource("v.h5", "x", (8, 8, 8))[4:]
    (folder / "b.h5").unlink()
    link(folder / "b.h5", layout)


BROKEN: dict[str, tuple[Callable[[Path], None], type[VoxloadError], tuple[str, ...]]] = {
    "file gone": (remove, DataError, ("b.h5", "no such file")),
    "dataset gone": (rename, DataError, ("b.h5", "no dataset 'x'")),
    "smaller extent": (shrink, DataError, ("b.h5", "(3, 8, 8)")),
    "wider type": (widen, UsageError, ("b.h5", "source of int64")),
    "chunk never written": (leave_unwritten, DataError, ("b.h5", "chunk (0, 1, 0) never written")),
    "nothing written": (leave_unallocated, DataError, ("b.h5", "no value ever written")),
    "no HDF5": (damage, DataError, ("b.h5",)),
    "link to another file": (redirect, UsageError, ("b.h5", "a link to another file", "a.h5")),
    "its own source": (close_circle, UsageError, ("v.h5:x", "its own source")),
}
FILLED = {"chunk never written", "nothing written"}
"""What ``missing="fill"`` reads, as HDF5 does; a source that is gone stays an error."""


@pytest.mark.parametrize("name", BROKEN)
def test_what_h5py_would_fill_is_an_error(tmp_path: Path, name: str) -> None:
    """A source that is not there, too small or not written raises an error that names it and the virtual dataset."""
    change, kind, words = BROKEN[name]
    location = halves(tmp_path)
    change(tmp_path)
    found, message = outcome(location)
    assert found is kind, message
    assert all(word in message for word in (*words, location.path)), message
    assert "\n" not in message
    if name in FILLED:
        with h5py.File(location.path) as file:
            stored = file["x"][...]
        assert np.array_equal(read(location, "fill"), stored)
        assert (stored == 5).any()
    else:
        assert outcome(location, "fill")[0] is kind


def test_a_hole_is_an_error_unless_it_is_filled(tmp_path: Path) -> None:
    """Voxels without a source are counted, or become the virtual dataset's fill value where that is asked for."""
    location = halves(tmp_path, stop=7)
    found, message = outcome(location)
    assert found is DataError
    assert "64 voxels that no source" in message
    filled = read(location, "fill")
    assert np.array_equal(filled[:7], CUBE[:7])
    assert (filled[7] == -9).all()


def strided(layout: h5py.VirtualLayout) -> None:
    """Map every second plane."""
    layout[::2] = layout[1::2] = h5py.VirtualSource("a.h5", "x", (4, 8, 8))


def scattered(layout: h5py.VirtualLayout) -> None:
    """Map planes of no regular distance."""
    layout[[0, 1, 3, 7]] = h5py.VirtualSource("a.h5", "x", (4, 8, 8))


def reshaped(layout: h5py.VirtualLayout) -> None:
    """Map a source of other extents."""
    layout[:4] = layout[4:] = h5py.VirtualSource("a.h5", "x", (4, 64))


def twice(layout: h5py.VirtualLayout) -> None:
    """Map some planes twice."""
    layout[:4] = layout[3:7] = layout[4:] = h5py.VirtualSource("a.h5", "x", (4, 8, 8))


@pytest.mark.parametrize(
    ("change", "words"),
    [(strided, "every n-th"), (scattered, "no boxes"), (reshaped, "extents"), (twice, "maps both")],
    ids=["strided", "scattered", "reshaped", "twice"],
)
def test_mappings_that_are_no_tiling_are_refused(
    tmp_path: Path, change: Callable[[h5py.VirtualLayout], None], words: str
) -> None:
    """What cannot be proved to be whole is not read."""
    layout = h5py.VirtualLayout((8, 8, 8), "<i2")
    change(layout)
    write(tmp_path / "a.h5", CUBE[:4].reshape(4, 64) if change is reshaped else CUBE[:4])
    found, message = outcome(link(tmp_path / "v.h5", layout))
    assert found in (UsageError, DataError)
    assert words in message
    assert "v.h5" in message


def test_patterns_of_sources_are_refused(tmp_path: Path) -> None:
    """How many sources a pattern stands for is told by which files there are: one that is gone would go unseen."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    space = h5py.h5s.create_simple((8, 8, 8), (h5py.h5s.UNLIMITED, 8, 8))
    everything = (h5py.h5s.UNLIMITED, 1, 1)
    space.select_hyperslab((0, 0, 0), everything, (4, 1, 1), (4, 8, 8))
    plist.set_virtual(space, b"%b.h5", b"x", h5py.h5s.create_simple((4, 8, 8)))
    write(tmp_path / "0.h5", CUBE[:4])
    write(tmp_path / "1.h5", CUBE[4:])
    with h5py.File(tmp_path / "v.h5", "w") as file:
        whole = h5py.h5s.create_simple((8, 8, 8), (h5py.h5s.UNLIMITED, 8, 8))
        h5py.h5d.create(file.id, b"x", h5py.h5t.STD_I16LE, whole, plist)
    found, message = outcome(Location(str(tmp_path / "v.h5"), "x"))
    assert found is UsageError
    assert "pattern of sources, %b.h5" in message


def truncate(path: Path) -> None:
    """Cut a file short."""
    os.truncate(path, path.stat().st_size - 1)


@pytest.mark.parametrize("change", [truncate, Path.unlink], ids=["truncated", "gone"])
@pytest.mark.parametrize("is_open", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("make", "name"), [(external, "b.raw"), (halves, "b.h5")], ids=["external", "virtual"])
def test_a_source_that_changes_is_an_error(
    tmp_path: Path, make: Callable[[Path], Location], name: str, change: Callable[[Path], None], *, is_open: bool
) -> None:
    """HDF5 fills in for bytes that a file lacks; here the file is named, whether it lacked them before or since."""
    location = make(tmp_path)
    if not is_open:
        change(tmp_path / name)
        found, message = outcome(location)
        assert found is DataError
        assert name in message
        return
    reader = open_reader(location, missing="fill")
    try:
        out = np.empty((1, 8, 8, 8), "<i2")
        reader.read_into(Box.whole((8, 8, 8)), out)
        change(tmp_path / name)
        with pytest.raises(DataError, match=name):
            reader.read_into(Box((6, 0, 0), (7, 8, 8)), out[:, :1])
    finally:
        reader.close()


def test_an_external_name_is_relative_to_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As HDF5 has it: another directory may hold another file of that name, so one that changes is an error."""
    (tmp_path / "other").mkdir()
    (tmp_path / "x.raw").write_bytes(CUBE.tobytes())
    (tmp_path / "other" / "x.raw").write_bytes((CUBE + 1).tobytes())
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file.create_dataset("x", (8, 8, 8), "<i2", external=[("x.raw", 0, 1024)])
    location = Location(str(tmp_path / "v.h5"), "x")
    monkeypatch.chdir(tmp_path / "other")
    assert np.array_equal(read(location), CUBE + 1)
    reader = open_reader(location)
    try:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(UsageError, match="working directory"):
            reader.read_into(Box.whole((8, 8, 8)), np.empty((1, 8, 8, 8), "<i2"))
    finally:
        reader.close()
    assert np.array_equal(read(location), CUBE)


@pytest.mark.parametrize(("make", "name"), [(external, "HDF5_EXTFILE_PREFIX"), (halves, "HDF5_VDS_PREFIX")])
def test_prefixes_of_the_environment_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], Location], name: str
) -> None:
    """They have HDF5 look for sources elsewhere."""
    location = make(tmp_path)
    monkeypatch.setenv(name, str(tmp_path))
    found, message = outcome(location)
    assert found is UsageError
    assert f"unset {name}" in message


@pytest.mark.parametrize("present", [("beside",), ("cwd",), ("real",), ("beside", "cwd"), ("cwd", "real"), ("old",)])
@pytest.mark.parametrize("is_absolute", [False, True], ids=["relative", "absolute"])
def test_sources_are_found_where_hdf5_finds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, present: tuple[str, ...], *, is_absolute: bool
) -> None:
    """Of files of the same name in several folders, the one is read that plain h5py reads."""
    for number, folder in enumerate(("beside", "cwd", "real", "old")):
        (tmp_path / folder).mkdir()
        if folder in present:
            write(tmp_path / folder / "s.h5", CUBE + number)
    layout = h5py.VirtualLayout((8, 8, 8), "<i2")
    name = str(tmp_path / "old" / "s.h5") if is_absolute else "s.h5"
    layout[:] = h5py.VirtualSource(name, "x", (8, 8, 8))
    link(tmp_path / "real" / "v.h5", layout)
    (tmp_path / "beside" / "v.h5").symlink_to(tmp_path / "real" / "v.h5")
    monkeypatch.chdir(tmp_path / "cwd")
    location = Location(str(tmp_path / "beside" / "v.h5"), "x", within=None)
    with h5py.File(location.path) as file:
        stored = file["x"][...]
    if (stored == -9).all():
        assert outcome(location)[0] is DataError
        assert not Path(find_source(name, location.path)).exists()
    else:
        assert np.array_equal(read(location), stored)


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    """Let this process open some forty files more than it has open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = {int(path.name) for path in Path("/proc/self/fd").iterdir()}
    limit = [number for number in range(len(used) + 46) if number not in used][45]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_more_sources_than_descriptors(tmp_path: Path, few_descriptors: None) -> None:  # noqa: ARG001 - a fixture
    """Plain h5py fills in for sources that it has no descriptor for; here a bounded number of them is open."""
    count = 70
    layout = h5py.VirtualLayout((count, 2, 2), "<i2")
    for number in range(count):
        write(tmp_path / f"{number}.h5", np.full((1, 2, 2), number + 1, "<i2"))
        layout[number : number + 1] = h5py.VirtualSource(f"{number}.h5", "x", (1, 2, 2))
    location = link(tmp_path / "v.h5", layout)
    with h5py.File(location.path) as file:
        assert (file["x"][...] == -9).any()
    assert np.array_equal(read(location)[:, 0, 0], np.arange(1, count + 1))


def test_a_link_to_another_file_is_refused(tmp_path: Path) -> None:
    """Chunks are looked up in the file that was named: those of a dataset in another file are not there."""
    write(tmp_path / "a.h5", CUBE, chunks=(4, 4, 4))
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = h5py.ExternalLink("a.h5", "x")
        file["soft"] = h5py.SoftLink("/own")
        file["own"] = CUBE
    found, message = outcome(Location(str(tmp_path / "x.h5"), "x"))
    assert found is UsageError
    assert "a link to another file" in message
    assert "a.h5:x" in message
    (tmp_path / "y.h5").symlink_to(tmp_path / "x.h5")
    with h5py.File(tmp_path / "x.h5") as other:
        assert other["own"].shape == CUBE.shape
        for name in ("x.h5", "y.h5"):
            assert np.array_equal(read(Location(str(tmp_path / name), "soft")), CUBE)


BOXES = st.lists(st.tuples(*[st.tuples(st.integers(0, 5), st.integers(1, 3))] * 3), min_size=1, max_size=8)


@given(BOXES)
def test_overlaps_are_found_as_by_counting(rows: list[tuple[tuple[int, int], ...]]) -> None:
    """Two boxes share a voxel exactly where a count of the voxels says so."""
    boxes = [Box(tuple(lo for lo, _ in row), tuple(lo + width for lo, width in row)) for row in rows]
    counts = np.zeros((8, 8, 8), int)
    for box in boxes:
        counts[box.slices] += 1
    overlap = BoxIndex(boxes).first_overlap()
    assert (overlap is None) == (counts.max() == 1)
    if overlap is None:
        assert uncovered(boxes, (8, 8, 8)) == np.count_nonzero(counts == 0)
    else:
        assert boxes[overlap[0]].intersect(boxes[overlap[1]]) is not None
    meeting = BoxIndex(boxes).meeting(boxes[0])
    assert meeting == [n for n, box in enumerate(boxes) if box.intersect(boxes[0]) is not None]
