"""Storage: what the system refuses is neither damaged nor missing; what was never written can be filled."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Literal

import h5py
import numpy as np
import pytest
import zarr

from tests.support.ranks import printed_by_ranks
from voxload.readers import Location, open_reader

pytestmark = pytest.mark.usefixtures("no_leaks")

CUBE = np.arange(8 * 8 * 8, dtype="<i2").reshape(8, 8, 8)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_fill_gives_the_fill_value_of_the_file(laws: ModuleType, tmp_path: Path, zarr_format: Literal[2, 3]) -> None:
    """What was never written reads as the file's own fill value, and the rest as it was written."""
    expected = CUBE[np.newaxis].copy()
    expected[:, 4:] = -7
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", (8, 8, 8), "<i2", chunks=(4, 4, 4), fillvalue=-7)[:4] = CUBE[:4]
        file.create_dataset("whole", (8, 8, 8), "<i2", fillvalue=-7)
    array = zarr.create_array(
        tmp_path / "x.zarr", shape=(8, 8, 8), dtype="<i2", chunks=(4, 4, 4), fill_value=-7, zarr_format=zarr_format
    )
    array[:4] = CUBE[:4]
    for name, dataset, wanted in (
        ("x.h5", "x", expected),
        ("x.zarr", "", expected),
        ("x.h5", "whole", expected[:, 4:]),
    ):
        reader = open_reader(Location(str(tmp_path / name), dataset), missing="fill")
        found = laws.read(reader, reader.describe().whole)
        assert np.array_equal(found[:, -wanted.shape[1] :], wanted)
        reader.close()


OPEN_ELSEWHERE = """
import os, sys
import voxload.readers.zarr.arrays  # before the interpreter's own folder may be closed to us
from voxload.readers import Location, open_reader
from voxload.errors import StorageError
if os.geteuid() == 0:  # the superuser may read everything
    os.setegid(65534), os.seteuid(65534)
import numpy
for path in sys.argv[1:]:
    try:
        reader = open_reader(Location(path))
        reader.read_into(reader.describe().whole, numpy.empty(reader.describe().shape, "<i2"))
    except StorageError as error:
        print(error)
"""


def open_elsewhere(*paths: Path) -> str:
    """Read volumes in another process without privileges; return the messages of their StorageErrors, in lines."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "elsewhere.py")
        script.write_text(OPEN_ELSEWHERE)
        return printed_by_ranks(script, *paths, ranks=1)


@pytest.fixture
def shared() -> Iterator[Path]:
    """Make a folder that other users may enter; pytest keeps its own closed."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.long
def test_no_permission_is_the_storages_fault(shared: Path) -> None:
    """A file that may not be read is neither damaged nor missing."""
    with h5py.File(shared / "x.h5", "w") as file:
        file["x"] = CUBE
    np.save(shared / "x.npy", CUBE)
    for name in ("x.zarr", "y.zarr"):
        zarr.create_array(shared / name, data=CUBE, chunks=(4, 4, 4))
    closed = [shared / name for name in ("x.h5", "x.npy", "x.zarr", "y.zarr/c/0/0/0")]
    for path in closed:
        path.chmod(0)
    try:
        said = open_elsewhere(*(shared / name for name in ("x.h5", "x.npy", "x.zarr", "y.zarr"))).splitlines()
    finally:
        for path in closed:
            path.chmod(0o755)
    assert len(said) == len(closed)
    for line, path in zip(said, closed, strict=True):
        assert "ermission denied" in line
        assert str(path) in line


def test_a_file_that_is_being_written_is_the_storages_fault(shared: Path) -> None:
    """HDF5's lock says "later", not "damaged"."""
    with h5py.File(shared / "x.h5", "w") as file:
        file["x"] = CUBE
        file.flush()
        assert "lock" in open_elsewhere(shared / "x.h5")
