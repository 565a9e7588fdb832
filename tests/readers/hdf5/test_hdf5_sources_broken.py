"""Virtual and external HDF5 datasets: an error wherever h5py would fill in or the sources are uncertain."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.readers.hdf5.hdf5_sources import CUBE, external, halves, link, outcome, read, write
from voxload.errors import DataError, UsageError, VoxloadError
from voxload.geometry import Box
from voxload.readers import Location, open_reader

pytestmark = pytest.mark.usefixtures("no_leaks")


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
