"""Virtual and external HDF5 datasets: what h5py reads, from the sources that HDF5 finds."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.readers.hdf5.hdf5_sources import CUBE, external, halves, link, outcome, read, write
from voxload.errors import DataError, UsageError
from voxload.geometry import Box
from voxload.readers import Location, open_reader
from voxload.readers.hdf5.virtual import find_source
from voxload.readers.hdf5.virtualmapping import BoxIndex, uncovered

pytestmark = pytest.mark.usefixtures("no_leaks")


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


LAYOUTS: dict[str, tuple[Callable[[Path], Location], str]] = {
    "halves": (halves, "h5py: virtual dataset of 2 sources"),
    "images": (images, "h5py: virtual dataset of 8 sources"),
    "crops": (crops, "h5py: virtual dataset of 8 sources"),
    "nested": (nested, "h5py: virtual dataset of 1 sources"),
    "external": (external, "h5py: external storage"),
}


@pytest.mark.few_cases(2)
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
