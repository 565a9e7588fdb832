"""Faults: each broken or wrong input, the error it must raise, and words of its message."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import h5py
import numcodecs
import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

from voxload.errors import DataError, NotFoundError, UsageError, VoxloadError
from voxload.geometry import Box
from voxload.readers import Location, open_reader

pytestmark = pytest.mark.usefixtures("no_leaks")

CUBE = np.arange(8 * 8 * 8, dtype="<i2").reshape(8, 8, 8)


@dataclass(frozen=True)
class Fault:
    """One broken input."""

    make: Callable[[Path], Location]
    """Makes it in a folder and returns where it is."""
    error: type[VoxloadError]
    """What opening or reading it raises."""
    words: tuple[str, ...]
    """Parts of the message."""
    fills: bool = False
    """Whether ``missing="fill"`` reads it: true only for what was never written."""


def h5(change: Callable[[h5py.File], object], **location: Any) -> Callable[[Path], Location]:
    """Return a maker of an HDF5 file."""

    def make(folder: Path) -> Location:
        path = folder / "x.h5"
        with h5py.File(path, "w") as file:
            change(file)
        return Location(str(path), **location)

    return make


def cut(make: Callable[[Path], Location], name: str, keep: float) -> Callable[[Path], Location]:
    """Return a maker of the same input with one file cut short."""

    def made(folder: Path) -> Location:
        location = make(folder)
        path = folder / name
        os.truncate(path, int(path.stat().st_size * keep))
        return location

    return made


def array(change: Callable[[Path], object], *, dataset: str = "", **options: Any) -> Callable[[Path], Location]:
    """Return a maker of a Zarr array of the cube in chunks of 4, changed after writing."""

    def make(folder: Path) -> Location:
        path = folder / "x.zarr"
        zarr.create_array(path, data=CUBE, **{"chunks": (4, 4, 4), "compressors": None, **options})
        change(path)
        return Location(str(path), dataset)

    return make


def group(change: Callable[[zarr.Group], object], dataset: str = "", *, lose: str = "") -> Callable[[Path], Location]:
    """Return a maker of a Zarr group; afterwards one file of it is lost."""

    def make(folder: Path) -> Location:
        path = folder / "x.zarr"
        change(zarr.create_group(path))
        if lose:
            (path / lose).unlink()
        return Location(str(path), dataset)

    return make


def untouched(path: Path) -> None:
    """Leave it as it is."""


def become_folder(path: Path) -> None:
    """Put a folder in a file's place."""
    path.unlink()
    path.mkdir()


def overwrite(path: Path, place: int, data: bytes) -> None:
    """Write bytes into a file; a negative place counts from its end."""
    content = bytearray(path.read_bytes())
    start = place % len(content)
    content[start : start + len(data)] = data
    path.write_bytes(bytes(content))


def edit(path: Path, old: str, new: str) -> None:
    """Replace text in a metadata file."""
    text = path.read_text()
    assert old in text, text
    path.write_text(text.replace(old, new))


def saved(name: str, data: bytes, **location: Any) -> Callable[[Path], Location]:
    """Return a maker of a plain file."""

    def make(folder: Path) -> Location:
        (folder / name).write_bytes(data)
        return Location(str(folder / name), **location)

    return make


def npy(values: np.ndarray[Any, Any], **location: Any) -> Callable[[Path], Location]:
    """Return a maker of an npy file."""

    def make(folder: Path) -> Location:
        np.save(folder / "x.npy", values, allow_pickle=True)
        return Location(str(folder / "x.npy"), **location)

    return make


def link_virtual(file: h5py.File) -> None:
    """Make a virtual dataset whose source file does not exist."""
    layout = h5py.VirtualLayout((8, 8, 8), "<i2")
    layout[:] = h5py.VirtualSource("absent.h5", "x", (8, 8, 8))
    file.create_virtual_dataset("x", layout)


def ask_unknown_filter(file: h5py.File) -> None:
    """Make a dataset with a filter that no library has."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((4, 4, 4))
    plist.set_filter(511, h5py.h5z.FLAG_OPTIONAL, (1,))
    h5py.h5d.create(file.id, b"x", h5py.h5t.STD_I16LE, h5py.h5s.create_simple((8, 8, 8)), plist)


def rot(file: h5py.File) -> None:
    """Write gzip chunks of which one is no deflate stream."""
    dataset = file.create_dataset("x", data=CUBE, chunks=(4, 4, 4), compression="gzip")
    dataset.id.write_direct_chunk((4, 4, 4), b"not deflated")


SHARDED: dict[str, Any] = {"shards": (8, 8, 8)}
MAX = (2**64 - 1).to_bytes(8, "little")
INDEX = 8 * 16 + 4
"""Bytes of the index of a shard of eight chunks, with its checksum."""


def drop_inner(path: Path) -> None:
    """Rewrite a shard without its last inner chunk, as a writer that stopped early leaves it."""
    array = zarr.create_array(
        path.parent / "y.zarr", shape=(8, 8, 8), chunks=(4, 4, 4), shards=(8, 8, 8), dtype="<i2", compressors=None
    )
    array[:4] = CUBE[:4]
    (path.parent / "y.zarr/c/0/0/0").replace(path / "c/0/0/0")


FAULTS: dict[str, Fault] = {
    "missing path": Fault(lambda p: Location(str(p / "no.h5")), NotFoundError, ("no.h5", "no such file")),
    "missing url": Fault(lambda p: Location(f"file://{p}/no.zarr"), UsageError, ("no.zarr", "no volume")),
    "unknown protocol": Fault(lambda _: Location("nowhere://x"), UsageError, ("nowhere", "voxload[remote]")),
    "folder of no format": Fault(lambda p: Location(str(p)), UsageError, ("no volume that any reader knows",)),
    "file of no format": Fault(saved("x.txt", b"words"), UsageError, ("no known header", "shape and dtype")),
    "empty file": Fault(saved("x.h5", b""), UsageError, ("no known header",)),
    # HDF5
    "h5 missing dataset": Fault(
        h5(lambda f: (f.create_dataset("a", data=CUBE), f.create_dataset("g/b", data=CUBE)), dataset="c"),
        NotFoundError, ("no dataset 'c'", "['a', 'g/b']"),
    ),
    "h5 dataset is a group": Fault(
        h5(lambda f: f.create_dataset("g/b", data=CUBE), dataset="g"), NotFoundError, ("no dataset 'g'", "['g/b']")
    ),
    "h5 two volumes": Fault(
        h5(lambda f: (f.create_dataset("a", data=CUBE), f.create_dataset("b", data=CUBE))),
        NotFoundError, ("2 volumes", "['a', 'b']", "name one"),
    ),
    "h5 no volume": Fault(h5(lambda f: f.create_dataset("a", data=[1])), NotFoundError, ("0 volumes", "right file")),
    "h5 rank 2": Fault(h5(lambda f: f.create_dataset("x", data=CUBE[0]), dataset="x"), UsageError, ("2 axes",)),
    "h5 rank 0": Fault(h5(lambda f: f.create_dataset("x", data=1), dataset="x"), UsageError, ("0 axes",)),
    "h5 null dataspace": Fault(
        h5(lambda f: f.create_dataset("x", dtype="<i2", data=h5py.Empty("<i2")), dataset="x"),
        UsageError, ("0 axes",),
    ),
    "h5 rank 4 without axes": Fault(
        h5(lambda f: f.create_dataset("x", data=CUBE[None])), UsageError, ("four axes without names", "DHWC")
    ),
    "axes of another rank": Fault(
        h5(lambda f: f.create_dataset("x", data=CUBE), axes="CDHW"), UsageError, ("3 axes for axes='CDHW'",)
    ),
    "axes of other letters": Fault(
        h5(lambda f: f.create_dataset("x", data=CUBE), axes="XYZ"), UsageError, ("x.h5", "'XYZ'", "permutation")
    ),
    "axes twice": Fault(
        h5(lambda f: f.create_dataset("x", data=CUBE), axes="DDH"), UsageError, ("x.h5", "'DDH'", "permutation")
    ),
    "h5 truncated": Fault(
        cut(h5(lambda f: f.create_dataset("x", data=CUBE)), "x.h5", 0.7), DataError, ("x.h5", "truncated file")
    ),
    "h5 cut in its header": Fault(
        cut(h5(lambda f: f.create_dataset("x", data=CUBE)), "x.h5", 0.01), DataError, ("x.h5",)
    ),
    "h5 chunk never written": Fault(
        h5(lambda f: f.create_dataset("x", (8, 8, 8), "<i2", chunks=(4, 4, 4)).__setitem__(slice(0, 4), 1)),
        DataError, ("x.h5", "chunk (1, 0, 0) never written", 'missing="fill"'), fills=True,
    ),
    "h5 contiguous never written": Fault(
        h5(lambda f: f.create_dataset("x", (8, 8, 8), "<i2")), DataError, ("no value ever written",), fills=True
    ),
    "h5 damaged chunk": Fault(h5(rot), DataError, ("x.h5", "box [0:8, 0:8, 0:8]")),
    "h5 virtual": Fault(h5(link_virtual), UsageError, ("virtual storage",)),
    "h5 external": Fault(
        h5(lambda f: f.create_dataset("x", (8, 8, 8), "<i2", external=[("absent.raw", 0, 1024)])),
        UsageError, ("external storage",),
    ),
    "h5 unknown filter": Fault(h5(ask_unknown_filter), UsageError, ("filter 511", "not installed")),
    "h5 complex": Fault(
        h5(lambda f: f.create_dataset("x", data=CUBE.astype("c8"))), UsageError, ("complex64", "an integer or floating")
    ),
    "h5 strings": Fault(
        h5(lambda f: f.create_dataset("x", data=CUBE.astype("S3"))), UsageError, ("an integer or floating",)
    ),
    "h5 compound": Fault(
        h5(lambda f: f.create_dataset("x", (2, 2, 2), [("a", "<i2")])), UsageError, ("an integer or floating",)
    ),
    "h5 no extent": Fault(h5(lambda f: f.create_dataset("x", (0, 8, 8), "<i2")), DataError, ("extents of 1 or more",)),
    "catalogue says another shape": Fault(
        h5(lambda f: f.create_dataset("x", data=CUBE), shape=(8, 8, 9)), DataError, ("(8, 8, 9) as catalogued",)
    ),
    "catalogue says another type": Fault(
        h5(lambda f: f.create_dataset("x", data=CUBE), dtype="<f4"), DataError, ("<f4 as catalogued",)
    ),
    "catalogue says no type": Fault(
        h5(lambda f: f.create_dataset("x", data=CUBE), dtype="counts"), UsageError, ("dtype 'counts'", "numpy type")
    ),
    # npy and raw
    "npy truncated": Fault(cut(npy(CUBE), "x.npy", 0.7), DataError, ("x.npy", "damaged or incomplete")),
    "npy cut in its header": Fault(cut(npy(CUBE), "x.npy", 0.05), DataError, ("x.npy",)),
    "npy pickled": Fault(npy(np.full((2, 2, 2), None, object)), DataError, ("Python objects",)),
    "npy complex": Fault(npy(CUBE.astype("c16")), UsageError, ("complex128",)),
    "npy no extent": Fault(npy(CUBE[:0]), DataError, ("extents of 1 or more",)),
    "npy structured": Fault(npy(np.zeros((2, 2, 2), [("a", "<i2")])), UsageError, ("an integer or floating",)),
    "npy rank 5": Fault(npy(CUBE[None, None]), UsageError, ("5 axes",)),
    "npy damaged header": Fault(
        saved("x.npy", b"\x93NUMPY\x01\x00\x10\x00{'descr': \x00     \n"), DataError, ("x.npy", "damaged")
    ),
    "npy no version": Fault(saved("x.npy", b"\x93NUMPY\x09\x00"), DataError, ("x.npy",)),
    "raw too short": Fault(
        saved("x.raw", CUBE.tobytes()[:-1], shape=(8, 8, 8), dtype="<i2"), DataError, ("1023 bytes", "1024 for")
    ),
    "raw too long": Fault(
        saved("x.raw", CUBE.tobytes() + b"0", shape=(8, 8, 8), dtype="<i2"), DataError, ("1025 bytes", "has a header")
    ),
    "raw without dtype": Fault(saved("x.raw", CUBE.tobytes(), shape=(8, 8, 8)), UsageError, ("no known header",)),
    "raw of no type": Fault(
        saved("x.raw", CUBE.tobytes(), shape=(8, 8, 8), dtype="counts"), UsageError, ("dtype 'counts'",)
    ),
    "raw of objects": Fault(saved("x.raw", bytes(64), shape=(2, 2, 2), dtype="O"), UsageError, ("a type of numbers",)),
    "raw of negative extents": Fault(
        saved("x.raw", bytes(64), shape=(-2, -2, 8), dtype="<i2"), UsageError, ("extents of 1 or more",)
    ),
    # Zarr
    "zarr missing array": Fault(
        group(lambda g: g.create_array("a", data=CUBE), "b"),
        NotFoundError, ("no array 'b'", "['a']"),
    ),
    "zarr two volumes": Fault(
        group(lambda g: [g.create_array(name, data=CUBE) for name in "ab"]),
        NotFoundError, ("2 volumes", "['a', 'b']"),
    ),
    "zarr array is a group": Fault(
        group(lambda g: g.create_group("g"), "g"),
        NotFoundError, ("no array 'g'", "three or four axes"),
    ),
    "zarr name in a bare array": Fault(array(untouched, dataset="a"), NotFoundError, ("without a name",)),
    "zarr rank 4 without axes": Fault(
        group(lambda g: g.create_array("a", data=CUBE[None])),
        UsageError, ("four axes without names",),
    ),
    "zarr complex": Fault(
        group(lambda g: g.create_array("a", data=CUBE.astype("c8"))),
        UsageError, ("complex64",),
    ),
    "zarr missing chunk": Fault(
        array(lambda p: (p / "c/1/0/1").unlink()), DataError, ("x.zarr", "no chunk c/1/0/1"), fills=True
    ),
    "zarr v2 missing chunk": Fault(
        array(lambda p: (p / "1.0.1").unlink(), zarr_format=2), DataError, ("no chunk 1.0.1",), fills=True
    ),
    "zarr missing chunk of a group": Fault(
        group(lambda g: g.create_array("g/a", data=CUBE, chunks=(4, 4, 4)), "g/a", lose="g/a/c/0/0/1"),
        DataError, ("no chunk g/a/c/0/0/1",), fills=True,
    ),
    "zarr chunk is a folder": Fault(
        array(lambda p: become_folder(p / "c/0/1/1")), DataError, ("x.zarr/c/0/1/1", "a folder")
    ),
    "zarr empty chunk": Fault(
        array(lambda p: os.truncate(p / "c/0/1/1", 0)), DataError, ("x.zarr/c/0/1/1", "an empty file")
    ),
    "zarr truncated chunk": Fault(cut(array(untouched), "x.zarr/c/0/1/1", 0.7), DataError, ("x.zarr", "box [")),
    "zarr chunk too long": Fault(
        array(lambda p: (p / "c/0/1/1").write_bytes(bytes(200))), DataError, ("x.zarr", "box [")
    ),
    **{
        f"zarr truncated {codec!r} chunk": Fault(
            cut(array(untouched, compressors=maker), "x.zarr/c/0/1/1", 0.7), DataError, ("x.zarr", "box [")
        )
        for codec, maker in {
            "gzip": GzipCodec(), "zstd": ZstdCodec(), "blosc": BloscCodec(), "crc32c": zarr.codecs.Crc32cCodec()
        }.items()
    },
    **{
        f"zarr v2 truncated {codec.codec_id!r} chunk": Fault(
            cut(array(untouched, zarr_format=2, compressors=codec), "x.zarr/0.1.1", 0.7), DataError, ("box [",)
        )
        for codec in (numcodecs.Zlib(), numcodecs.GZip(), numcodecs.BZ2(), numcodecs.LZMA(), numcodecs.LZ4(),
                      numcodecs.Zstd(), numcodecs.Blosc())
    },
    "zarr damaged zlib chunk": Fault(
        array(lambda p: overwrite(p / "0.1.1", 4, b"\xff" * 8), zarr_format=2, compressors=numcodecs.Zlib()),
        DataError, ("box [",),
    ),
    "zarr missing shard": Fault(
        array(lambda p: (p / "c/0/0/0").unlink(), **SHARDED), DataError, ("no chunk c/0/0/0",), fills=True
    ),
    "zarr missing inner chunk": Fault(
        array(drop_inner, **SHARDED), DataError, ("no chunk c/0/0/0, inner chunk (1, 0, 0)",), fills=True
    ),
    "zarr truncated shard": Fault(
        cut(array(untouched, **SHARDED), "x.zarr/c/0/0/0", 0.7), DataError, ("x.zarr/c/0/0/0", "points outside")
    ),
    "zarr shard shorter than its index": Fault(
        array(lambda p: os.truncate(p / "c/0/0/0", 100), **SHARDED), DataError, ("100 bytes", "at least 132")
    ),
    "zarr shard index past the end": Fault(
        array(lambda p: overwrite(p / "c/0/0/0", -INDEX, (10**6).to_bytes(8, "little")), **SHARDED),
        DataError, ("c/0/0/0", "points outside"),
    ),
    "zarr shard index that wraps round": Fault(
        array(lambda p: overwrite(p / "c/0/0/0", -INDEX, (2**64 - 2).to_bytes(8, "little")), **SHARDED),
        DataError, ("c/0/0/0", "points outside"),
    ),
    "zarr half-absent index entry": Fault(
        array(lambda p: overwrite(p / "c/0/0/0", 8 - INDEX, MAX), **SHARDED), DataError, ("points outside",)
    ),
    "zarr shard index of another checksum": Fault(
        array(lambda p: overwrite(p / "c/0/0/0", -4, b"\0\0\0\0"), **SHARDED), DataError, ("checksum",)
    ),
    "zarr shard is a folder": Fault(
        array(lambda p: become_folder(p / "c/0/0/0"), **SHARDED), DataError, ("c/0/0/0", "a folder")
    ),
    "zarr metadata no JSON": Fault(array(lambda p: (p / "zarr.json").write_text("{")), DataError, ("x.zarr",)),
    "zarr metadata empty": Fault(array(lambda p: (p / "zarr.json").write_text("")), DataError, ("x.zarr",)),
    "zarr metadata a list": Fault(array(lambda p: (p / "zarr.json").write_text("[]")), DataError, ("x.zarr",)),
    "zarr unknown codec": Fault(
        array(lambda p: edit(p / "zarr.json", '"bytes"', '"nosuch"')), UsageError, ("nosuch", "an installed codec")
    ),
    "zarr v2 unknown codec": Fault(
        array(lambda p: edit(p / ".zarray", '"zlib"', '"nosuch"'), zarr_format=2, compressors=numcodecs.Zlib()),
        UsageError, ("nosuch", "an installed codec"),
    ),
}  # fmt: skip


def read(location: Location, missing: str) -> np.ndarray[Any, Any]:
    """Open and read the whole volume."""
    reader = open_reader(location, missing=missing)
    try:
        info = reader.describe()
        out = np.full(info.shape, 77, info.native_dtype)
        reader.read_into(info.whole, out)
    finally:
        reader.close()
    return out


def outcome(location: Location, missing: str) -> tuple[type[VoxloadError] | None, str]:
    """Read the whole volume; return what was raised. The error itself is let go: it holds what it was raised in."""
    try:
        read(location, missing)
    except VoxloadError as error:
        return type(error), str(error)
    return None, ""


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_has_its_error(tmp_path: Path, name: str) -> None:
    """A fault raises the error of who has to act, in one line that says what and where."""
    fault = FAULTS[name]
    location = fault.make(tmp_path)
    error, message = outcome(location, "error")
    assert error is fault.error, message
    assert "\n" not in message
    assert all(part in message for part in fault.words), message
    assert location.path.removeprefix("file://") in message
    if fault.fills:
        assert outcome(location, "fill") == (None, "")
    else:
        assert outcome(location, "fill") == (error, message)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_fill_gives_the_fill_value_of_the_file(tmp_path: Path, zarr_format: Literal[2, 3]) -> None:
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
    assert np.array_equal(read(Location(str(tmp_path / "x.h5"), "x"), "fill"), expected)
    assert np.array_equal(read(Location(str(tmp_path / "x.zarr")), "fill"), expected)
    assert np.all(read(Location(str(tmp_path / "x.h5"), "whole"), "fill") == -7)


def test_only_the_missing_part_is_an_error(tmp_path: Path, laws: ModuleType) -> None:
    """A rank whose block is whole reads it, whatever is missing elsewhere."""
    location = FAULTS["zarr missing chunk"].make(tmp_path)
    reader = open_reader(location)
    assert laws.same_bits(laws.read(reader, Box((0, 0, 0), (4, 8, 8))), CUBE[np.newaxis, :4])


def test_a_missing_policy_of_another_name_is_refused(tmp_path: Path) -> None:
    """A misspelt policy is no silent fill."""
    location = npy(CUBE)(tmp_path)
    with pytest.raises(UsageError, match="missing: found 'ignore', expected 'error' or 'fill'"):
        open_reader(location, missing="ignore")


OPEN_ELSEWHERE = """
import os, sys
from voxload.readers import Location, open_reader
from voxload.errors import StorageError
if os.geteuid() == 0:  # the superuser may read everything
    os.setegid(65534), os.seteuid(65534)
try:
    reader = open_reader(Location(sys.argv[1]))
    import numpy
    reader.read_into(reader.describe().whole, numpy.empty(reader.describe().shape, "<i2"))
except StorageError as error:
    print(error)
"""


def open_elsewhere(path: Path) -> str:
    """Read a volume in another process without privileges; return the message of its StorageError."""
    command = [sys.executable, "-c", OPEN_ELSEWHERE, str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.mark.parametrize("name", ["x.h5", "x.npy", "x.zarr", "x.zarr/c/0/0/0"])
def test_no_permission_is_the_storages_fault(tmp_path: Path, name: str) -> None:
    """A file that may not be read is neither damaged nor missing."""
    tmp_path.chmod(0o755)
    tmp_path.parent.chmod(0o755)
    tmp_path.parent.parent.chmod(0o755)
    h5(lambda f: f.create_dataset("x", data=CUBE))(tmp_path)
    npy(CUBE)(tmp_path)
    array(untouched)(tmp_path)
    (tmp_path / name).chmod(0)
    try:
        assert "ermission denied" in open_elsewhere(tmp_path / name.split("/", maxsplit=1)[0])
    finally:
        (tmp_path / name).chmod(0o755)


def test_a_file_that_is_being_written_is_the_storages_fault(tmp_path: Path) -> None:
    """HDF5's lock says "later", not "damaged"."""
    tmp_path.chmod(0o755)
    tmp_path.parent.chmod(0o755)
    tmp_path.parent.parent.chmod(0o755)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = CUBE
        file.flush()
        assert "lock" in open_elsewhere(tmp_path / "x.h5")
