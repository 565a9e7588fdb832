"""Faults: every way in which a volume can be broken, for each format where it can be, and what is then raised."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from tests.support.damage import patches
from tests.support.damage.volumes import FORMS, Form, cube
from voxload.errors import VoxloadError
from voxload.readers import Location, Reader, open_reader

CUBE = cube(8)
CHUNK = (4, 4, 4)
PLACE = (1, 0, 1)
"""The broken chunk, in the grid of chunks."""
SHARD = (1, 0, 0)
"""The broken shard, in the grid of shards; also the first chunk that a read takes from it."""
START = tuple(index * width for index, width in zip(PLACE, CHUNK, strict=True))
INNER, INNERS = 1, 4
"""The broken chunk's place in its shard's index, and how many entries that has."""
_HUGE = 2**40
_LAST = 2**64 - 64
"""An offset to which the size of a chunk cannot be added in 64 bits."""

Change = Callable[[Path], object]
"""Breaks the volume at a path."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    fault: str
    """What is broken."""
    form: Form
    """How the volume is stored."""
    change: Change
    """Breaks it."""
    place: tuple[int, ...] | None
    """The chunk that the message must name; None where the fault is one of the whole file."""
    file: str = ""
    """The file in the hierarchy that the message must name too, where it is what is wrong."""
    is_late: bool = False
    """Whether it breaks while a reader that has read it before is open."""
    fills: bool = False
    """Whether ``missing="fill"`` reads it: what was never written, and no damage."""

    @property
    def name(self) -> str:
        """Name in test reports."""
        return f"{self.fault}, {self.form.name}"

    def outcome(self, folder: Path, *, missing: str = "error") -> tuple[type[VoxloadError] | None, str]:
        """Break a volume in `folder`, read it, and return type and message of the error: it holds the reader itself."""
        location = self.form.make(folder, CUBE, CHUNK)
        path = Path(location.path)
        if not self.is_late:
            self.change(path)
            return _error(lambda: _open_and_read(location, missing))
        with closing(open_reader(location, missing=missing)) as reader:
            read(reader)
            self.change(path)
            return _error(lambda: read(reader))


def read(reader: Reader) -> None:
    """Read a whole volume."""
    info = reader.describe()
    reader.read_into(info.whole, np.empty(info.shape, info.native_dtype))


def _open_and_read(location: Location, missing: str) -> None:
    with closing(open_reader(location, missing=missing)) as reader:
        read(reader)


def _error(call: Callable[[], None]) -> tuple[type[VoxloadError] | None, str]:
    try:
        call()
    except VoxloadError as error:
        return type(error), str(error)
    return None, ""


def _forms(*names: str) -> list[Form]:
    return [FORMS[name] for name in names]


_FILTERS = (
    "gzip",
    "fletcher32",
    "zstd",
    "blosc",
    "blosc2",
    "lz4",
    "lzf",
    "bitshuffle",
    "szip",
    "bzip2",
    "nbit",
    "scaleoffset",
)
_H5_FILTERED = _forms(*(f"HDF5 {name}" for name in _FILTERS))
_H5 = [*_forms("HDF5 raw"), *_H5_FILTERED]
_ZARR = [form for form in FORMS.values() if form.suffix == "zarr" and not form.is_sharded]
_SHARDED = [form for form in FORMS.values() if form.is_sharded]
_LONG, _SHORT = (4, 4, 8), (4, 4, 2)
"""Chunks that decode to more, and to less, than they should."""


def rows() -> list[Row]:
    """Return the whole table."""
    return list(chain(_absent(), _not_files(), _truncated(), _flipped(), _pointers(), _sizes(), _changed()))


def _key(form: Form) -> str:
    if form.is_sharded:
        return "c/1/0/0"
    return "1.0.1" if form.options.get("zarr_format") == 2 else "c/1/0/1"


def _on_key(form: Form, change: Change) -> Change:
    """Return the change of a chunk's or shard's file in a hierarchy."""
    return lambda path: change(path / _key(form))


def _absent() -> Iterator[Row]:
    for form in _ZARR:
        change = _on_key(form, Path.unlink)
        yield Row("missing chunk object", form, change, PLACE, _key(form), fills=True)
    for form in _SHARDED:
        change = _on_key(form, Path.unlink)
        yield Row("missing shard object", form, change, SHARD, _key(form), fills=True)

        def lose(path: Path) -> None:
            patches.change_entry(path, INNERS, INNER, lambda _offset, _length: (2**64 - 1, 2**64 - 1))

        yield Row("missing inner chunk", form, _on_key(form, lose), PLACE, _key(form), fills=True)
    for name in ("HDF5 raw", "HDF5 gzip", "HDF5 latest raw", "HDF5 scaleoffset"):
        form = FORMS[name]
        yield Row("chunk never written", form, _rewrite_without(form), PLACE, fills=True)


def _rewrite_without(form: Form) -> Change:
    """Return a change that writes an HDF5 file anew, all chunks but one."""

    def change(path: Path) -> None:
        location = form.make(path.parent, CUBE, CHUNK)
        patches.forget_in_hdf5(Path(location.path), START)

    return change


def _not_files() -> Iterator[Row]:
    for form in (*_ZARR, *_SHARDED):
        kind, place = ("shard", SHARD) if form.is_sharded else ("chunk", PLACE)
        yield Row(f"folder in place of a {kind}", form, _on_key(form, patches.become_folder), place, _key(form))
        yield Row(f"{kind} of no bytes", form, _on_key(form, lambda path: os.truncate(path, 0)), place, _key(form))
    for form in _H5:
        yield Row("chunk of no bytes", form, lambda path: patches.point_in_hdf5(path, START, size=0), PLACE)


def _truncated() -> Iterator[Row]:
    for form in (*_ZARR, *_SHARDED):
        kind, place = ("shard", SHARD) if form.is_sharded else ("chunk", PLACE)
        file = _key(form) if form.is_sharded or form.name.endswith("raw") else ""
        yield Row(f"truncated {kind}", form, _on_key(form, lambda path: patches.cut(path, 0.7)), place, file)
    for form in _SHARDED:
        yield Row("shard cut to half an index", form, _on_key(form, lambda p: os.truncate(p, 20)), SHARD, _key(form))
    for form in _H5:
        yield Row("truncated chunk", form, _cut_chunk, PLACE)
    for form in (*_forms("HDF5 contiguous", "npy"), *_H5):
        yield Row("truncated file", form, lambda path: patches.cut(path, 0.7), None)


def _cut_chunk(path: Path) -> None:
    patches.point_in_hdf5(path, START, size=int(len(patches.stored_in_hdf5(path, START)) * 0.7))


def _flipped() -> Iterator[Row]:
    for name in ("HDF5 gzip", "HDF5 latest gzip"):
        yield Row("flipped bit under adler32", FORMS[name], _flip_h5(-10), PLACE)
    for name in ("HDF5 fletcher32", "HDF5 latest fletcher32"):
        yield Row("flipped bit under fletcher32", FORMS[name], _flip_h5(7), PLACE)
    yield Row("flipped bit in a fletcher32 checksum", FORMS["HDF5 fletcher32"], _flip_h5(-1), PLACE)
    yield Row("flipped bit in a header", FORMS["HDF5 blosc"], _flip_h5(4), PLACE)
    yield Row("flipped bit in a header", FORMS["HDF5 lz4"], _flip_h5(7), PLACE)
    yield Row("flipped bit in a header", FORMS["HDF5 zstd"], _flip_h5(0), PLACE)
    yield Row("flipped bit in a header", FORMS["HDF5 bitshuffle"], _flip_h5(7), PLACE)
    yield Row("flipped bit in a header", FORMS["HDF5 blosc2"], _flip_h5(37), PLACE)
    yield Row("flipped bit in a header", FORMS["HDF5 szip"], _flip_h5(0), PLACE)
    yield Row("flipped bit in a header", FORMS["HDF5 scaleoffset"], _flip_h5(0), PLACE)
    yield Row("flipped bit under bzip2's crc32", FORMS["HDF5 bzip2"], _flip_h5(-10), PLACE)
    for name in ("bzip2", "nbit", "scaleoffset"):
        yield Row("chunk of one byte", FORMS[f"HDF5 {name}"], lambda p: patches.store_in_hdf5(p, START, b"B"), PLACE)
    for checksum, name in (
        ("adler32", "Zarr v2 zlib"),
        ("gzip's crc32", "Zarr v3 gzip"),
        ("zstd's checksum", "Zarr v3 zstd"),
        ("crc32c", "Zarr v3 crc32c"),
    ):
        form = FORMS[name]
        change = _on_key(form, lambda path: patches.flip(path, -10))
        yield Row(f"flipped bit under {checksum}", form, change, PLACE)
    for name in ("Zarr v2 blosc", "Zarr v3 blosc", "Zarr v2 lz4"):
        place = 0 if name.endswith("lz4") else 4
        change = _on_key(FORMS[name], lambda path, place=place: patches.flip(path, place))  # type: ignore[misc]
        yield Row("flipped bit in a header", FORMS[name], change, PLACE)
    for form in _SHARDED:
        place = -4 - INNERS * patches.INDEX_ENTRY.size
        change = _on_key(form, lambda path, place=place: patches.flip(path, place))  # type: ignore[misc]
        yield Row("flipped bit in a shard index", form, change, SHARD, _key(form))
    for name, checksum in (("sharded Zarr gzip", "gzip's crc32"), ("sharded Zarr crc32c", "crc32c")):
        form = FORMS[name]
        yield Row(f"flipped bit under {checksum}", form, _on_key(form, _flip_inner), PLACE)
    for name in ("HDF5 latest raw", "HDF5 latest gzip"):
        yield Row("flipped bit in a chunk table with a checksum", FORMS[name], patches.flip_table_in_hdf5, None)


def _flip_h5(place: int) -> Change:
    return lambda path: patches.flip_in_hdf5(path, START, place)


def _flip_inner(path: Path) -> None:
    data = bytearray(patches.stored_in_shard(path, INNERS, INNER))
    data[-10] ^= 1
    patches.store_in_shard(path, INNERS, INNER, bytes(data))


def _pointers() -> Iterator[Row]:
    for form in _H5:
        for fault, offset in (("offset beyond the end of the file", _HUGE), ("offset + size beyond 2^64", _LAST)):
            yield Row(fault, form, _point_h5(offset), PLACE)
    for form in _SHARDED:
        for fault, entry in (
            ("offset beyond the end of the file", (_HUGE, 64)),
            ("size beyond the end of the file", (0, _HUGE)),
            ("offset + size beyond 2^64", (_LAST, 128)),
        ):
            yield Row(fault, form, _on_key(form, _point_inner(entry)), SHARD, _key(form))


def _point_h5(offset: int) -> Change:
    return lambda path: patches.point_in_hdf5(path, START, offset=offset)


def _point_inner(entry: tuple[int, int]) -> Change:
    return lambda path: patches.change_entry(path, INNERS, INNER, lambda _offset, _length: entry)


def _sizes() -> Iterator[Row]:
    for fault, other in (("chunk that decodes to more", _LONG), ("chunk that decodes to less", _SHORT)):
        for form in _H5_FILTERED:
            yield Row(fault, form, _swap_h5(form, other), PLACE)
        for form in (*_ZARR, *_SHARDED):
            yield Row(fault, form, _on_key(form, _swap_zarr(form, other)), PLACE)


def _twin(form: Form, folder: Path, chunk: tuple[int, ...]) -> Path:
    folder.mkdir()
    return Path(form.make(folder, CUBE, chunk).path)


def _swap_h5(form: Form, chunk: tuple[int, ...]) -> Change:
    def change(path: Path) -> None:
        twin = _twin(form, path.parent / "twin", chunk)
        patches.store_in_hdf5(path, START, patches.stored_in_hdf5(twin, (0, 0, 0)))

    return change


def _swap_zarr(form: Form, chunk: tuple[int, ...]) -> Change:
    def change(path: Path) -> None:
        root = next(folder for folder in path.parents if folder.suffix == ".zarr")
        twin = _twin(form, root.with_name("twin"), chunk)
        if form.is_sharded:
            patches.store_in_shard(path, INNERS, INNER, patches.stored_in_shard(twin / "c/0/0/0", INNERS, 0))
        else:
            first = "0.0.0" if form.options.get("zarr_format") == 2 else "c/0/0/0"
            path.write_bytes((twin / first).read_bytes())

    return change


def _changed() -> Iterator[Row]:
    for name in ("HDF5 contiguous", "HDF5 raw", "HDF5 gzip", "HDF5 latest gzip", "HDF5 scaleoffset", "npy"):
        for fault, change in _LATE:
            yield Row(fault, FORMS[name], change, None, is_late=True)
    for form in _SHARDED:
        for fault, change in _LATE:
            yield Row(fault, form, _on_key(form, change), None, _key(form), is_late=True)


def _touch(path: Path) -> None:
    status = path.stat()
    with path.open("r+b") as file:
        file.write(file.read(1))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))


def _replace(path: Path) -> None:
    status = path.stat()
    fresh = path.with_name("fresh")
    fresh.write_bytes(path.read_bytes())
    os.utime(fresh, ns=(status.st_atime_ns, status.st_mtime_ns))
    fresh.replace(path)


_LATE: tuple[tuple[str, Change], ...] = (
    ("file written to since its table was read", _touch),
    ("file replaced since its table was read", _replace),
    ("file truncated since its table was read", lambda path: patches.cut(path, 0.7)),
)
