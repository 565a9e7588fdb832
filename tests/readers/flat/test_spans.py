"""Spans: every wanted byte is read, in bounded pieces, without a map, and a file cut short is an error."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxload.errors import DataError
from voxload.geometry import Box
from voxload.readers import Location, Reader, open_reader
from voxload.readers.flat.contiguous import SpanVolume, sieve
from voxload.readers.pasting.pasteplan import ChunkShape, Wanted, plan_parts
from voxload.readers.storage import file as file_module
from voxload.readers.storage.file import FileBytes
from voxload.readers.team import set_threads

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every file system count as one that is not node-local."""
    monkeypatch.setattr(file_module, "is_on_near_device", lambda *_: False)


@st.composite
def boxes(draw: st.DrawFn) -> tuple[ChunkShape, Box]:
    """Draw an array in C or Fortran order, and a box in it."""
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=3, max_size=4)))
    turned = draw(st.permutations(range(len(shape))))
    span = [sorted(draw(st.lists(st.integers(0, n), min_size=2, max_size=2, unique=True))) for n in shape]
    dtype = np.dtype(draw(st.sampled_from(["<u1", "<i2", ">i2", "<f4", ">f8"])))
    return ChunkShape.of(shape, dtype, turned=tuple(turned)), Box(tuple(a for a, _ in span), tuple(b for _, b in span))


@given(drawn=boxes(), gap=st.integers(0, 200), limit=st.integers(1, 400))
def test_spans_hold_what_is_wanted_and_little_else(drawn: tuple[ChunkShape, Box], gap: int, limit: int) -> None:
    """Spans hold each wanted byte once, no hole longer than the gap allows, and no more bytes than the limit."""
    shape, box = drawn
    width = shape.itemsize
    tile = sieve(shape, box, gap=gap, limit=limit)
    places = np.array(list(np.ndindex(box.shape))) + np.array(box.start)
    wanted = {int(first) for first in places @ np.array(shape.strides) * width}
    view = np.empty(box.shape, f"u{width}")
    parts = plan_parts(tile, [Wanted(box, view)])
    found = []
    for number, place in enumerate(parts.places):
        corner = sum(i * n * s * width for i, n, s in zip(place, tile.extents, tile.strides, strict=True))
        first, stop = parts.spans[number]
        assert stop - first <= max(limit, width)
        inside = sorted(first_byte for first_byte in wanted if corner + first <= first_byte < corner + stop)
        assert inside[0] == corner + first
        assert inside[-1] == corner + stop - width
        assert all(after - before - width <= gap for before, after in itertools.pairwise(inside))
        found += inside
    assert wanted <= set(found)
    if limit >= max(wanted) - min(wanted) + width and gap >= max(wanted):
        assert len(parts.places) == 1


@given(data=st.data())
def test_a_read_by_spans_equals_numpys_slice(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Whatever the order, type and limits, and however many boxes and threads, the voxels are numpy's."""
    shape, box = data.draw(boxes())
    set_threads(data.draw(st.sampled_from([1, 3])))
    dtype = shape.dtype.newbyteorder("S" if shape.is_swapped else "=")
    offset = data.draw(st.integers(0, 5))
    flat = np.random.default_rng(0).integers(0, 256, math.prod(shape.extents) * shape.itemsize, np.uint8)
    path = tmp_path_factory.mktemp("spans") / "x"
    path.write_bytes(bytes(offset) + flat.tobytes() + b"!")
    strides = tuple(stride * shape.itemsize for stride in shape.strides)
    whole = np.ndarray(shape.extents, dtype, flat.tobytes(), strides=strides).astype(dtype.newbyteorder("="))
    file = FileBytes(str(path))
    volume = SpanVolume("x", shape, file, offset)
    views = [np.zeros(box.shape, whole.dtype), np.zeros(whole.shape, whole.dtype, order="F")]
    volume.read_all([Wanted(box, views[0]), Wanted(Box.whole(whole.shape), views[1])])
    file.close()
    assert views[0].tobytes() == whole[box.slices].tobytes()
    assert views[1].tobytes() == whole.tobytes()


def _npy(path: Path, stored: np.ndarray[Any, Any], order: str) -> Location:
    np.save(path, np.asfortranarray(stored) if order == "F" else stored)
    return Location(str(path), axes="DHWC")


def _raw(path: Path, stored: np.ndarray[Any, Any], _order: str) -> Location:
    stored.tofile(path)
    return Location(str(path), axes="DHWC", shape=stored.shape, dtype=stored.dtype.str)


def _hdf5(path: Path, stored: np.ndarray[Any, Any], _order: str) -> Location:
    with h5py.File(path, "w", userblock_size=512) as file:
        file.create_dataset("x", data=stored, dtype=stored.dtype)
    return Location(str(path), "x", axes="DHWC")


def _whole(reader: Reader, laws: ModuleType) -> Any:
    return laws.read(reader, reader.describe().whole)


WRITERS = {"x.npy": _npy, "x.raw": _raw, "x.h5": _hdf5}
"""Name of a file to the function that writes it."""


@pytest.mark.few_cases(2)
@pytest.mark.usefixtures("remote")
@pytest.mark.parametrize(("name", "order"), [*((name, "C") for name in WRITERS), ("x.npy", "F")])
@pytest.mark.parametrize("dtype", ["<i2", ">f4"])
def test_files_that_are_not_node_local_keep_the_laws(
    laws: ModuleType, tmp_path: Path, name: str, dtype: str, order: str
) -> None:
    """Raw, npy and contiguous HDF5 files are Readers without a map."""
    stored = laws.voxels((7, 6, 5, 3), dtype)
    reader = open_reader(WRITERS[name](tmp_path / name, stored, order))
    laws.check_reader(reader, laws.to_volume(stored, "DHWC"))
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()
    expected = "native" if name == "x.h5" else "spans: the file system is not node-local"
    assert reader.describe().route == expected
    reader.close()


@pytest.mark.usefixtures("remote")
@pytest.mark.parametrize("name", WRITERS)
def test_a_file_cut_short_while_it_is_read_is_an_error(
    laws: ModuleType, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the check and the read a file loses its end: the read says so, and the process lives."""
    stored = laws.voxels((40, 60, 50, 3))
    location = WRITERS[name](tmp_path / name, stored, "C")
    reader = open_reader(location)
    check = FileBytes.check_unchanged

    def check_then_cut(file: FileBytes) -> None:
        check(file)
        os.truncate(location.path, 5000)

    monkeypatch.setattr(FileBytes, "check_unchanged", check_then_cut)
    with pytest.raises(DataError, match=rf"{name}.*bytes at .*, expected .*copy or convert"):
        _whole(reader, laws)
    reader.close()


def test_a_file_shorter_than_its_header_says_is_refused(tmp_path: Path) -> None:
    """What an npy file announces must be there; more is as numpy has it."""
    np.save(tmp_path / "x.npy", np.zeros((4, 5, 6), "<i2"))
    whole = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(whole[:-1])
    with pytest.raises(DataError, match=r"x.npy: found 367 bytes, expected 368 for int16 \(4, 5, 6\)"):
        open_reader(Location(str(tmp_path / "x.npy")))
    (tmp_path / "x.npy").write_bytes(whole + b"!")
    open_reader(Location(str(tmp_path / "x.npy"))).close()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda whole: whole.replace(b"NUMPY\x01\x00", b"NUMPY\x09\x00"), "npy version"),
        (lambda whole: whole.replace(b"'<i2'", b"'|O' "), "pickled Python objects"),
        (lambda whole: whole.replace(b"(4, 5, 6)", b"(4, 5,-6)"), "extents of 1 or more"),
        (lambda whole: whole[:40], "readable data"),
    ],
)
def test_damaged_headers_are_errors(tmp_path: Path, damage: Callable[[bytes], bytes], words: str) -> None:
    """Versions of the future, pickles, negative extents and half a header are refused by name."""
    np.save(tmp_path / "x.npy", np.zeros((4, 5, 6), "<i2"))
    (tmp_path / "x.npy").write_bytes(damage((tmp_path / "x.npy").read_bytes()))
    with pytest.raises(DataError, match=words):
        open_reader(Location(str(tmp_path / "x.npy")))


def test_what_is_too_large_for_a_cast_becomes_infinite(tmp_path: Path) -> None:
    """In small arrays too, which numpy casts, and without a warning."""
    np.save(tmp_path / "x.npy", np.full((3, 4, 5), 1e9))
    reader = open_reader(Location(str(tmp_path / "x.npy")))
    out = np.zeros((1, 3, 4, 5), np.float16)
    reader.read_into(Box.whole((3, 4, 5)), out)
    reader.close()
    assert np.isinf(out).all()
