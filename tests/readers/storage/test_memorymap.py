"""npy and headerless raw files, through memory maps."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from voxload.errors import UsageError
from voxload.readers import Location, open_reader

pytestmark = pytest.mark.usefixtures("no_leaks")

TYPES = [
    pytest.param(kind, order, marks=() if kind % 2 == place else pytest.mark.long)
    for place, order in enumerate("<>")
    for kind in range(12)
]
"""Every type in each byte order; the short run has each type in one order, and each width in both."""


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<i2", ">f4", "|b1"])
def test_npy_keeps_the_laws(laws: ModuleType, tmp_path: Path, dtype: str, order: str) -> None:
    """An npy file in C or Fortran order, in either byte order, is a Reader."""
    stored = laws.voxels((7, 6, 5, 3), dtype).copy(order=order)
    np.save(tmp_path / "x.npy", stored)
    reader = open_reader(Location(str(tmp_path / "x.npy"), axes="DHWC"))
    laws.check_reader(reader, laws.to_volume(stored, "DHWC"))
    assert reader.describe().format == "npy"
    reader.close()


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_npy_of_every_version_is_read(laws: ModuleType, tmp_path: Path, version: tuple[int, int]) -> None:
    """The three header versions of npy are understood."""
    stored = laws.voxels((4, 5, 6))
    with (tmp_path / "x.npy").open("wb") as file:
        np.lib.format.write_array(file, stored, version=version)
    reader = open_reader(Location(str(tmp_path / "x.npy")))
    assert laws.same_bits(laws.read(reader, reader.describe().whole), stored[np.newaxis])


@pytest.mark.parametrize("dtype", ["<i2", ">i2", pytest.param(">f8", marks=pytest.mark.long)])
def test_raw_keeps_the_laws(laws: ModuleType, tmp_path: Path, dtype: str) -> None:
    """A headerless file of known shape and type is a Reader."""
    stored = laws.voxels((3, 7, 6, 5), dtype)
    stored.tofile(tmp_path / "x.raw")
    reader = open_reader(Location(str(tmp_path / "x.raw"), axes="CDHW", shape=(3, 7, 6, 5), dtype=dtype))
    laws.check_reader(reader, laws.to_volume(stored, "CDHW"))
    reader.close()


def test_raw_in_fortran_order_is_the_same_file_turned_round(laws: ModuleType, tmp_path: Path) -> None:
    """A cube written with D fastest is described by reversed shape and axes."""
    cube = laws.voxels((4, 5, 6))
    (tmp_path / "x.raw").write_bytes(cube.tobytes(order="F"))
    reader = open_reader(Location(str(tmp_path / "x.raw"), axes="WHD", shape=(6, 5, 4), dtype="<i2"))
    laws.check_reader(reader, cube[np.newaxis])
    reader.close()


@pytest.mark.few_cases(2)
@pytest.mark.parametrize(("kind", "byte_order"), TYPES)
def test_every_type_in_every_axis_order(laws: ModuleType, tmp_path: Path, kind: int, byte_order: str) -> None:
    """Each of the 30 axis orders of each type and byte order is transposed, never reshaped."""
    dtype = np.dtype(laws.DTYPES[kind]).newbyteorder(byte_order)
    for axes in laws.AXES:
        stored = laws.voxels((2, 3, 4, 5)[: len(axes)], dtype)
        whole = laws.to_volume(stored, axes)
        np.save(tmp_path / "x.npy", stored)
        stored.tofile(tmp_path / "x.raw")
        places = (
            Location(str(tmp_path / "x.npy"), axes=axes),
            Location(str(tmp_path / "x.raw"), axes=axes, shape=stored.shape, dtype=dtype.str),
        )
        for place in places:
            reader = open_reader(place)
            assert laws.same_bits(laws.read(reader, reader.describe().whole), whole)
            reader.close()


def test_a_closed_reader_refuses_and_lets_go_of_the_file(laws: ModuleType, tmp_path: Path) -> None:
    """After close a read is misuse, and the file is no longer mapped."""
    np.save(tmp_path / "x.npy", laws.voxels((4, 5, 6)))
    reader = open_reader(Location(str(tmp_path / "x.npy")))
    assert str(tmp_path) in Path("/proc/self/maps").read_text()
    reader.close()
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()
    with pytest.raises(UsageError, match="a closed reader"):
        laws.read(reader, reader.describe().whole)
