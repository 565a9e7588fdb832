"""Raw formats: how they are recognised, described, read and refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from voxload.convert.sources import Headerless, Hints, MemoryOrder, Source, open_sources
from voxload.convert.sources.protocol import volume_view
from voxload.errors import DataError, UsageError
from voxload.geometry import Box

AXES = ["".join(letters) for letters in (*permutations("CDHW"), *permutations("DHW"))]
DTYPES = ["i1", "<u2", ">i2", "<i4", ">u8", "<f2", ">f4", "<f8", "?"]


def open_source(path: Path, *, axes: str | None = None, headerless: Headerless | None = None) -> Source | None:
    """Return the only cube of a file, or None when nothing knows it."""
    found = open_sources(path, Hints(axes=axes, headerless=headerless))
    assert len(found) < 2
    return found[0] if found else None


def _read(source: Source, box: Box) -> np.ndarray[Any, Any]:
    """Read a box into a buffer that lies in memory as the source on disk, as a conversion does."""
    cube = source.describe()
    shape = cube.order.to_stored((cube.volume_shape[0], *box.shape))
    view = volume_view(cube.order, np.zeros(shape, dtype=cube.dtype))
    with source.open() as read_into:
        read_into(box, view)
    return view


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80, deadline=None)
@given(data=st.data(), axes=st.sampled_from(AXES), dtype=st.sampled_from(DTYPES), is_fortran=st.booleans())
@pytest.mark.parametrize("form", ["npy", "raw"])
def test_boxes_equal_numpy(
    tmp_path: Path, data: st.DataObject, axes: str, *, dtype: str, is_fortran: bool, form: str
) -> None:
    """Any box of any axis order, type and memory order equals the array that was written, sliced and turned."""
    extents = {axis: data.draw(st.integers(1, 7), label=axis) for axis in "CDHW"}
    shape = tuple(extents[axis] for axis in axes)
    stored = np.random.default_rng(0).integers(0, 2**7, shape).astype(dtype)
    path = tmp_path / "cube"
    facts = None
    if form == "npy":
        with path.open("wb") as file:
            np.save(file, np.asfortranarray(stored) if is_fortran else stored)
    else:
        path.write_bytes(stored.tobytes("F" if is_fortran else "C"))
        facts = Headerless(shape, dtype, MemoryOrder.F if is_fortran else MemoryOrder.C)
    source = open_source(path, axes=axes, headerless=facts)
    assert source is not None
    volume = stored.transpose([axes.index(axis) for axis in "CDHW" if axis in axes])
    volume = volume if "C" in axes else volume[np.newaxis]
    starts = [data.draw(st.integers(0, extents[axis] - 1)) for axis in "DHW"]
    stops = [data.draw(st.integers(lo + 1, extents[axis])) for lo, axis in zip(starts, "DHW", strict=True)]
    box = Box(tuple(starts), tuple(stops))
    found = _read(source, box)
    assert found.dtype == np.dtype(dtype).newbyteorder("=")
    np.testing.assert_array_equal(found, volume[(slice(None), *box.slices)])


def test_a_box_may_be_read_into_any_strides(tmp_path: Path) -> None:
    """An array that lies in memory in another order is filled all the same."""
    cube = np.arange(4 * 5 * 6, dtype=">i4").reshape(4, 5, 6)
    np.save(tmp_path / "cube.npy", cube)
    source = open_source(tmp_path / "cube.npy")
    assert source is not None
    out = np.zeros((6, 5, 4, 2), dtype="i4")[..., :1].transpose(3, 2, 1, 0)
    with source.open() as read_into:
        read_into(Box.whole((4, 5, 6)), out)
    np.testing.assert_array_equal(out[0], cube)


def test_universe_is_described(tmp_path: Path, coordinates: Callable[..., Any], write_universe: Any) -> None:
    """A raw universe gives its cube with redshift last and its four parameters under their names."""
    volume = coordinates((3, 6, 6, 6), "<i2")
    source = open_source(write_universe(tmp_path / "u.hdf5", volume))
    assert source is not None
    cube = source.describe()
    assert (cube.dataset, cube.shape, cube.order.axes, cube.dtype) == ("full", (6, 6, 6, 3), "DHWC", np.dtype("i2"))
    assert cube.targets == {
        name: float(np.float32(value))
        for name, value in zip(("omega_m", "sigma_8", "n_spec", "h_0"), (0.1, 0.2, 0.3, 0.4), strict=True)
    }
    np.testing.assert_array_equal(_read(source, Box((1, 0, 2), (5, 6, 3))), volume[:, 1:5, :, 2:3])


@pytest.mark.parametrize(
    ("names", "values", "expected"),
    [
        ([b"a", b" b "], [1, 2], ["a", "b"]),
        ([b"a", b"b", b"c"], [1, 2], ["target_0", "target_1"]),
        (None, [1, 2, 3], ["target_0", "target_1", "target_2"]),
    ],
)
def test_target_names(
    tmp_path: Path, write_universe: Any, *, names: list[bytes] | None, values: list[int], expected: list[str]
) -> None:
    """The file's own names count when there is one for each value; else targets are numbered."""
    path = write_universe(tmp_path / "u.h5", np.zeros((1, 2, 2, 2), dtype="i2"), targets=values)
    if names:
        with h5py.File(path, "a") as file:
            file["namePar"] = np.array(names)
    source = open_source(path)
    assert source is not None
    assert list(source.describe().targets) == expected


def test_repeated_target_name_is_refused(tmp_path: Path, write_universe: Any) -> None:
    """Two parameters of one name would hide each other."""
    path = write_universe(tmp_path / "u.h5", np.zeros((1, 2, 2, 2), dtype="i2"), targets=[1, 2])
    with h5py.File(path, "a") as file:
        file["namePar"] = np.array([b"a", b"a"])
    with pytest.raises(DataError, match="'a' twice"):
        open_source(path)


def test_channels_first_universe_needs_axes(tmp_path: Path, write_universe: Any, coordinates: Any) -> None:
    """A split file of another tool has the same names and other axes: no guess, but the caller's word is taken."""
    volume = coordinates((4, 5, 6, 7), "<i2")
    path = write_universe(tmp_path / "u.h5", volume, axes="CWHD")
    with pytest.raises(UsageError, match=r"found shape \(4, 7, 6, 5\).*--axes"):
        open_source(path)
    source = open_source(path, axes="CWHD")
    assert source is not None
    np.testing.assert_array_equal(_read(source, Box.whole((5, 6, 7))), volume)


def test_unwritten_universe_is_refused(tmp_path: Path) -> None:
    """Chunks that were never written read as zeros in HDF5; they are no data."""
    with h5py.File(tmp_path / "u.h5", "w") as file:
        cube = file.create_dataset("full", (8, 8, 8, 1), dtype="<i2", chunks=(4, 4, 4, 1))
        cube[:4] = 1
        file["unitPar"] = np.zeros(4)
    source = open_source(tmp_path / "u.h5")
    assert source is not None
    with pytest.raises(DataError, match="never written"):
        _read(source, Box.whole((8, 8, 8)))
    assert source.describe().scratch_bytes == 2 * 4 * 4 * 4 * 2


def test_truncated_universe_is_refused(tmp_path: Path, write_universe: Any) -> None:
    """A cut HDF5 file is found before anything is read."""
    path = write_universe(tmp_path / "u.h5", np.ones((1, 16, 16, 16), dtype="i2"))
    os.truncate(path, path.stat().st_size - 1000)
    with pytest.raises(DataError, match=r"u\.h5.*truncated"):
        open_source(path)


def test_npy_faults(tmp_path: Path) -> None:
    """Four axes without names, a cut file, trailing bytes and pickled objects are refused, each with its remedy."""
    path = tmp_path / "cube.npy"
    np.save(path, np.zeros((2, 3, 4, 5)))
    with pytest.raises(UsageError, match="add --axes CDHW"):
        open_source(path)
    with pytest.raises(UsageError, match="axes"):
        open_source(path, axes="DHW")
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(DataError, match="found 1087 bytes, expected 1088 bytes"):
        open_source(path, axes="CDHW")
    np.save(path, np.array([[[object()]]]), allow_pickle=True)
    with pytest.raises(UsageError, match="integers or floats"):
        open_source(path)
    path.write_bytes(b"\x93NUMPY\x09\x00")
    with pytest.raises(DataError, match=r"cube\.npy"):
        open_source(path)


def test_headerless_faults(tmp_path: Path) -> None:
    """Size, shape, type and axes must fit exactly; a file with a header of its own is not headerless."""
    path = tmp_path / "cube.f32"
    path.write_bytes(bytes(4 * 6))
    with pytest.raises(DataError, match="found 24 bytes, expected 32 bytes"):
        open_source(path, headerless=Headerless((2, 2, 2), "<f4"))
    with pytest.raises(UsageError, match="as many extents as axes"):
        open_source(path, headerless=Headerless((1, 1, 2, 3), "<f4"))
    with pytest.raises(UsageError, match="--dtype"):
        Headerless((1, 2, 3), "float33")
    with pytest.raises(UsageError, match="--shape"):
        Headerless((1, 2), "<f4")
    np.save(tmp_path / "cube.npy", np.zeros((2, 2, 2)))
    with pytest.raises(UsageError, match="a header of its own"):
        open_source(tmp_path / "cube.npy", headerless=Headerless((2, 2, 2), "<f8"))
    assert open_source(path) is None


def test_file_cut_while_it_is_read(tmp_path: Path) -> None:
    """A file that ends before its array does raises, and is not taken for zeros."""
    np.save(tmp_path / "cube.npy", np.ones((4, 4, 4)))
    source = open_source(tmp_path / "cube.npy")
    assert source is not None
    out = np.zeros((1, 4, 4, 4))
    with source.open() as read_into:
        os.truncate(tmp_path / "cube.npy", 300)
        with pytest.raises(DataError, match="the end of the file at byte 300"):
            read_into(Box.whole((4, 4, 4)), out)
