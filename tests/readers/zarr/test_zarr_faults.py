"""Faults: each wrong or broken Zarr hierarchy, the error it must raise, and words of its message."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ZstdCodec

from voxload.errors import DataError, NotFoundError, UsageError, VoxloadError
from voxload.geometry import Box
from voxload.readers import Location, open_reader

pytestmark = pytest.mark.usefixtures("no_leaks")

CUBE = np.arange(8 * 8 * 8, dtype="<i2").reshape(8, 8, 8)


Row = tuple[Callable[[Path], Location], type[VoxloadError], tuple[str, ...]]
"""Makes the input in a folder and says where it is; the error that opening or reading it raises; words of it."""


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


FAULTS: dict[str, Row] = {
    "zarr missing array": (
        group(lambda g: g.create_array("a", data=CUBE), "b"),
        NotFoundError, ("no array 'b'", "['a']"),
    ),
    "zarr two volumes": (
        group(lambda g: [g.create_array(name, data=CUBE) for name in "ab"]),
        NotFoundError, ("2 volumes", "['a', 'b']"),
    ),
    "zarr array is a group": (
        group(lambda g: g.create_group("g"), "g"),
        NotFoundError, ("no array 'g'", "three or four axes"),
    ),
    "zarr name in a bare array": (array(untouched, dataset="a"), NotFoundError, ("without a name",)),
    "zarr rank 4 without axes": (
        group(lambda g: g.create_array("a", data=CUBE[None])),
        UsageError, ("four axes without names",),
    ),
    "zarr complex": (
        group(lambda g: g.create_array("a", data=CUBE.astype("c8"))),
        UsageError, ("complex64",),
    ),
    "zarr missing chunk": (
        array(lambda p: (p / "c/1/0/1").unlink()), DataError, ("x.zarr", "no chunk c/1/0/1")
    ),
    "zarr v2 missing chunk": (
        array(lambda p: (p / "1.0.1").unlink(), zarr_format=2), DataError, ("no chunk 1.0.1",)
    ),
    "zarr missing chunk of a group": (
        group(lambda g: g.create_array("g/a", data=CUBE, chunks=(4, 4, 4)), "g/a", lose="g/a/c/0/0/1"),
        DataError, ("no chunk g/a/c/0/0/1",),
    ),
    "zarr chunk is a folder": (
        array(lambda p: become_folder(p / "c/0/1/1")), DataError, ("x.zarr/c/0/1/1", "a folder")
    ),
    "zarr empty chunk": (
        array(lambda p: os.truncate(p / "c/0/1/1", 0)), DataError, ("x.zarr/c/0/1/1", "an empty file")
    ),
    "zarr truncated chunk": (
        cut(array(untouched), "x.zarr/c/0/1/1", 0.7), DataError, ("chunk (0, 1, 1)", "x.zarr/c/0/1/1: found 89 bytes")
    ),
    "zarr chunk too long": (
        array(lambda p: (p / "c/0/1/1").write_bytes(bytes(200))),
        DataError, ("chunk (0, 1, 1)", "x.zarr/c/0/1/1: found 200 bytes, expected a stored chunk of 128"),
    ),
    **{
        f"zarr truncated {codec!r} chunk": (
            cut(array(untouched, compressors=maker), "x.zarr/c/0/1/1", 0.7), DataError, ("x.zarr, chunk (0, 1, 1)",)
        )
        for codec, maker in {
            "gzip": GzipCodec(), "zstd": ZstdCodec(), "blosc": BloscCodec(), "crc32c": Crc32cCodec()
        }.items()
    },
    **{
        f"zarr v2 truncated {codec.codec_id!r} chunk": (
            cut(array(untouched, zarr_format=2, compressors=codec), "x.zarr/0.1.1", 0.7), DataError, (words,)
        )
        for words, codecs in {
            "x.zarr, chunk (0, 1, 1)": (numcodecs.Zlib(), numcodecs.GZip(), numcodecs.Zstd(), numcodecs.Blosc()),
            "x.zarr, chunk (0, 1, 1): found": (numcodecs.BZ2(), numcodecs.LZMA(), numcodecs.LZ4()),
        }.items() for codec in codecs
    },
    "zarr damaged zlib chunk": (
        array(lambda p: overwrite(p / "0.1.1", 4, b"\xff" * 8), zarr_format=2, compressors=numcodecs.Zlib()),
        DataError, ("x.zarr, chunk (0, 1, 1)",),
    ),
    "zarr missing shard": (
        array(lambda p: (p / "c/0/0/0").unlink(), **SHARDED), DataError, ("no chunk c/0/0/0",)
    ),
    "zarr missing inner chunk": (
        array(drop_inner, **SHARDED), DataError, ("no chunk c/0/0/0, inner chunk (1, 0, 0)",)
    ),
    "zarr truncated shard": (
        cut(array(untouched, **SHARDED), "x.zarr/c/0/0/0", 0.7), DataError, ("x.zarr/c/0/0/0", "points outside")
    ),
    "zarr shard shorter than its index": (
        array(lambda p: os.truncate(p / "c/0/0/0", 100), **SHARDED), DataError, ("100 bytes", "at least 132")
    ),
    "zarr shard index past the end": (
        array(lambda p: overwrite(p / "c/0/0/0", -INDEX, (10**6).to_bytes(8, "little")), **SHARDED),
        DataError, ("c/0/0/0", "points outside"),
    ),
    "zarr shard index that wraps round": (
        array(lambda p: overwrite(p / "c/0/0/0", -INDEX, (2**64 - 2).to_bytes(8, "little")), **SHARDED),
        DataError, ("c/0/0/0", "points outside"),
    ),
    "zarr half-absent index entry": (
        array(lambda p: overwrite(p / "c/0/0/0", 8 - INDEX, MAX), **SHARDED), DataError, ("points outside",)
    ),
    "zarr shard index of another checksum": (
        array(lambda p: overwrite(p / "c/0/0/0", -4, b"\0\0\0\0"), **SHARDED), DataError, ("checksum",)
    ),
    "zarr shard is a folder": (
        array(lambda p: become_folder(p / "c/0/0/0"), **SHARDED), DataError, ("c/0/0/0", "a folder")
    ),
    "zarr metadata no JSON": (array(lambda p: (p / "zarr.json").write_text("{")), DataError, ("x.zarr",)),
    "zarr metadata empty": (array(lambda p: (p / "zarr.json").write_text("")), DataError, ("x.zarr",)),
    "zarr metadata a list": (array(lambda p: (p / "zarr.json").write_text("[]")), DataError, ("x.zarr",)),
    "zarr unknown codec": (
        array(lambda p: edit(p / "zarr.json", '"bytes"', '"nosuch"')), UsageError, ("nosuch", "an installed codec")
    ),
    "zarr v2 unknown codec": (
        array(lambda p: edit(p / ".zarray", '"zlib"', '"nosuch"'), zarr_format=2, compressors=numcodecs.Zlib()),
        UsageError, ("nosuch", "an installed codec"),
    ),
}  # fmt: skip

NEVER_WRITTEN = {
    "zarr missing chunk",
    "zarr v2 missing chunk",
    "zarr missing chunk of a group",
    "zarr missing shard",
    "zarr missing inner chunk",
}
"""What ``missing="fill"`` reads."""


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_has_its_error(laws: ModuleType, tmp_path: Path, name: str) -> None:
    """A fault raises the error of who has to act, in one line that says what and where."""
    make, error, words = FAULTS[name]
    laws.check_fault(make(tmp_path), error, words, fills=name in NEVER_WRITTEN)


def test_only_the_missing_part_is_an_error(tmp_path: Path, laws: ModuleType) -> None:
    """A rank whose block is whole reads it, whatever is missing elsewhere."""
    location = FAULTS["zarr missing chunk"][0](tmp_path)
    reader = open_reader(location)
    assert laws.same_bits(laws.read(reader, Box((0, 0, 0), (4, 8, 8))), CUBE[np.newaxis, :4])
