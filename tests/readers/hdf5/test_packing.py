"""Scale-offset, n-bit and bzip2: bit for bit what libhdf5 makes of them, and of no other length."""

from __future__ import annotations

import bz2
import itertools
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from voxload.errors import DataError
from voxload.readers import Location, open_reader
from voxload.readers.decode.codecs import Bzip2
from voxload.readers.hdf5 import Hdf5Format

pytest.importorskip("hdf5plugin")
pytestmark = pytest.mark.usefixtures("no_leaks")

Array = npt.NDArray[Any]
SHAPE, CHUNK = (5, 6, 3), (2, 4, 3)
_FLETCHER, _SHUFFLE, _DEFLATE, _LZF, _ZSTD, _BZIP2 = 3, 2, 1, 32000, 32015, 307
BEHIND = ((), (_SHUFFLE,), (_DEFLATE,), (_SHUFFLE, _DEFLATE, _FLETCHER), (_FLETCHER,), (_LZF,), (_ZSTD,), (_BZIP2,))
"""Filters behind the one that packs."""
INTEGERS = ("i1", "u1", "<i2", ">i2", "<u2", "<i4", ">u4", "<i8", ">i8", "<u8")
MANY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def plist(behind: tuple[int, ...] = ()) -> Any:
    """Return the properties of a chunked dataset, and a function that adds filters behind the first."""
    made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    made.set_chunk(CHUNK)

    def add() -> Any:
        for number in behind:
            if number == _SHUFFLE:
                made.set_shuffle()
            else:
                # Optional: a chunk that lzf cannot shorten is stored without it, and says so in its mask.
                made.set_filter(number, h5py.h5z.FLAG_OPTIONAL, (9,) if number in (_DEFLATE, _BZIP2) else ())
        return made

    return made, add


def write(path: Path, values: Array, properties: Any, kind: Any = None) -> Array:
    """Write `values`, and return what libhdf5 reads of them."""
    with h5py.File(path, "w") as file:
        stored = kind or h5py.h5t.py_create(values.dtype)
        made = h5py.h5d.create(file.id, b"x", stored, h5py.h5s.create_simple(values.shape), properties)
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, np.ascontiguousarray(values))
    with h5py.File(path) as file:
        found: Array = file["x"][()]
        return found


def read(path: Path) -> tuple[str, Array]:
    """Return the route and the voxels."""
    with closing(open_reader(Location(str(path), "x", axes="DHW"))) as reader:
        info = reader.describe()
        out = np.empty(info.shape, info.native_dtype)
        reader.read_into(info.whole, out)
        return info.route, out[0]


def same(found: Array, expected: Array) -> bool:
    """Tell whether all bits are the same, whatever the order of bytes."""
    return found.tobytes() == expected.astype(expected.dtype.newbyteorder("=")).tobytes()


@MANY
@given(st.data())
def test_packed_integers_are_libhdf5s(tmp_path: Path, data: st.DataObject) -> None:
    """Every type, range, fill value, number of bits and filter behind, and chunks that stick out."""
    dtype: np.dtype[Any] = np.dtype(data.draw(st.sampled_from(INTEGERS)))
    info = np.iinfo(dtype)
    low = data.draw(st.integers(info.min, info.max))
    span = data.draw(st.sampled_from([0, 1, 6, 200, info.max]))
    elements = st.integers(low, min(low + span, info.max))
    values = data.draw(nps.arrays(dtype.newbyteorder("="), SHAPE, elements=elements, fill=st.just(low))).astype(dtype)
    made, add = plist(data.draw(st.sampled_from(BEHIND)))
    made.set_scaleoffset(h5py.h5z.SO_INT, data.draw(st.sampled_from([0, 0, 3, 8 * dtype.itemsize])))
    fill = data.draw(st.one_of(st.none(), st.sampled_from([low, min(low + span, info.max)]), st.just(0)))
    if fill is not None:
        made.set_fill_value(np.array(fill, dtype))
    expected = write(tmp_path / "x.h5", values, add())
    route, found = read(tmp_path / "x.h5")
    assert route == "native"
    assert same(found, expected)


@MANY
@given(st.data())
def test_scaled_floats_are_libhdf5s(tmp_path: Path, data: st.DataObject) -> None:
    """Both types and byte orders, decimal digits, fill values and filters behind."""
    dtype = np.dtype(data.draw(st.sampled_from(["<f4", ">f4", "<f8", ">f8"])))
    scale = data.draw(st.sampled_from([1e-3, 1.0, 1e6]))
    values = np.random.default_rng(data.draw(st.integers(0, 99))).normal(0, scale, SHAPE).astype(dtype)
    made, add = plist(data.draw(st.sampled_from(BEHIND)))
    made.set_scaleoffset(h5py.h5z.SO_FLOAT_DSCALE, data.draw(st.integers(0, 12)))
    fill = data.draw(st.sampled_from([None, 0.0, -2.5]))
    if fill is not None:
        made.set_fill_value(np.array(fill, dtype))
        values[::2] = fill
    expected = write(tmp_path / "x.h5", values, add())
    route, found = read(tmp_path / "x.h5")
    assert route == "native"
    assert same(found, expected)


@MANY
@given(st.data())
def test_types_of_few_bits_are_libhdf5s(tmp_path: Path, data: st.DataObject) -> None:
    """N-bit of integers of every size, sign, byte order, precision and offset, with and without filters behind.

    Numbers below zero among them, of which the bits that a type does not use are a matter of conversion.
    """
    dtype = np.dtype(data.draw(st.sampled_from(INTEGERS)))
    kind = h5py.h5t.py_create(dtype).copy()
    bits = data.draw(st.integers(4 * dtype.itemsize + 1, 8 * dtype.itemsize))  # HDF5 refuses fewer as a mistake
    kind.set_precision(bits)
    kind.set_offset(data.draw(st.integers(0, 8 * dtype.itemsize - bits)))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    least, most = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if dtype.kind == "i" else (0, 2**bits)
    values = rng.integers(least, most, SHAPE, dtype.newbyteorder("="), endpoint=False).astype(dtype)
    made, add = plist(data.draw(st.sampled_from(BEHIND)))
    if data.draw(st.booleans()):
        made.set_filter(h5py.h5z.FILTER_NBIT)
    expected = write(tmp_path / "x.h5", values, add(), kind)
    assert np.array_equal(expected, values)
    assert same(read(tmp_path / "x.h5")[1], expected)


@pytest.mark.parametrize("storage", ["contiguous", "external", "virtual"])
def test_types_of_few_bits_keep_their_sign_in_every_storage(tmp_path: Path, storage: str) -> None:
    """Of the highest byte first, libhdf5 gives others when it turns the bytes too; plain h5py has it not do that."""
    kind = h5py.h5t.STD_I16BE.copy()
    kind.set_precision(9)
    values = np.arange(-45, 45, dtype=">i2").reshape(SHAPE)
    made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    if storage == "external":
        made.set_external(str(tmp_path / "x.raw").encode(), 0, values.nbytes)
    path = tmp_path / ("source.h5" if storage == "virtual" else "x.h5")
    assert np.array_equal(write(path, values, made, kind), values)
    if storage == "virtual":
        layout = h5py.VirtualLayout(SHAPE, "<i2")
        layout[...] = h5py.VirtualSource(str(path), "x", SHAPE)
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file.create_virtual_dataset("x", layout)
    assert same(read(tmp_path / "x.h5")[1], values)


@pytest.mark.parametrize("size", [4, 5])
def test_floats_of_few_bits_are_libhdf5s(tmp_path: Path, size: int) -> None:
    """N-bit of a floating type with a short mantissa: the bits are unpacked here, and converted by libhdf5."""
    kind = h5py.h5t.IEEE_F32LE.copy()
    kind.set_fields(26, 20, 6, 7, 13)
    kind.set_offset(7)
    kind.set_precision(20)
    kind.set_ebias(31)
    kind.set_size(size)
    made, add = plist((_DEFLATE,))
    made.set_filter(h5py.h5z.FILTER_NBIT)
    values = np.random.default_rng(0).normal(0, 9, SHAPE).astype("f4")
    expected = write(tmp_path / "x.h5", values, add(), kind)
    assert np.allclose(expected, values, rtol=1e-3)
    assert same(read(tmp_path / "x.h5")[1], expected)


def _scaled(made: Any) -> Any:
    made.set_scaleoffset(h5py.h5z.SO_INT, 0)
    return made


def _packed(made: Any) -> Any:
    made.set_filter(h5py.h5z.FILTER_NBIT)
    return made


def _bzip2(made: Any) -> Any:
    made.set_filter(_BZIP2, h5py.h5z.FLAG_MANDATORY, (9,))
    return made


@pytest.mark.parametrize("add", [_scaled, _packed, _bzip2])
def test_a_chunk_of_any_other_length_is_refused(tmp_path: Path, add: Any) -> None:
    """Cut anywhere, or with a byte more: never voxels, whatever lies behind the chunk in memory."""
    kind = h5py.h5t.STD_I16LE.copy()
    kind.set_precision(12)
    values = np.random.default_rng(1).integers(0, 2000, SHAPE).astype("<i2")
    write(tmp_path / "x.h5", values, add(plist()[0]), kind if add is _packed else None)
    with h5py.File(tmp_path / "x.h5") as file:
        sound = file["x"].id.read_direct_chunk((0, 0, 0))[1]
    for stored in itertools.chain((sound[:keep] for keep in range(1, len(sound))), [sound + b"\0", sound * 2]):
        with h5py.File(tmp_path / "x.h5", "r+") as file:
            file["x"].id.write_direct_chunk((0, 0, 0), stored)
        with pytest.raises(DataError, match=r"chunk \(0, 0, 0\)"):
            read(tmp_path / "x.h5")


def test_a_virtual_dataset_decodes_its_sources_chunks_itself(tmp_path: Path) -> None:
    """libhdf5 hands out its memory for what a chunk of a source lacks: such a chunk is an error."""
    values = np.arange(90, dtype="<i4").reshape(SHAPE)
    with h5py.File(tmp_path / "source.h5", "w") as file:
        file.create_dataset("x", data=values, chunks=CHUNK, compression="gzip")
    layout = h5py.VirtualLayout(SHAPE, "<i4")
    layout[...] = h5py.VirtualSource(str(tmp_path / "source.h5"), "x", SHAPE)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_virtual_dataset("x", layout)
    assert same(read(tmp_path / "x.h5")[1], values)
    with h5py.File(tmp_path / "source.h5", "r+") as file:
        file["x"].id.write_direct_chunk((2, 0, 0), zlib.compress(bytes(8)))
    with pytest.raises(DataError, match=r"source\.h5:x, chunk \(1, 0, 0\).* 8 bytes instead of 96"):
        read(tmp_path / "x.h5")


def test_an_unusual_type_is_decoded_without_libhdf5(tmp_path: Path) -> None:
    """A chunk of elements that only libhdf5 converts is an error too where it is short."""
    kind = h5py.h5t.STD_I32LE.copy()
    kind.set_precision(20)
    _, add = plist((_SHUFFLE, _DEFLATE))
    values = np.arange(90, dtype="<i4").reshape(SHAPE)
    assert same(write(tmp_path / "x.h5", values, add(), kind), values)
    assert same(read(tmp_path / "x.h5")[1], values)
    with h5py.File(tmp_path / "x.h5", "r+") as file:
        file["x"].id.write_direct_chunk((2, 0, 0), zlib.compress(b""))
    with pytest.raises(DataError, match=r"chunk \(1, 0, 0\)"):
        read(tmp_path / "x.h5")


def test_targets_are_decoded_without_libhdf5(tmp_path: Path) -> None:
    """Vectors beside a volume are numbers like any other: of a short chunk come none."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("t", data=np.arange(9.0), chunks=(4,), compression="gzip", shuffle=True)
    read_vector = Hdf5Format().read_vector
    assert read_vector(str(tmp_path / "x.h5"), "t").tolist() == list(range(9))
    with h5py.File(tmp_path / "x.h5", "r+") as file:
        file["t"].id.write_direct_chunk((4,), zlib.compress(b""))
    with pytest.raises(DataError, match=r"t, chunk \(1,\)"):
        read_vector(str(tmp_path / "x.h5"), "t")


@pytest.mark.long
def test_bzip2_gives_no_more_than_it_may() -> None:
    """A stream of very many zeros stops behind the size that is wanted, and few bytes hold no chunk of terabytes."""
    bomb = np.frombuffer(bz2.compress(bytes(2**26)), np.uint8)
    with pytest.raises(ValueError, match="65 bytes or more instead of 64"):
        Bzip2().undo(bomb, 64)
    with pytest.raises(ValueError, match="cannot hold"):
        Bzip2().undo(bomb, 2**40)
    assert not Bzip2().undo(bomb, 2**26).any()
