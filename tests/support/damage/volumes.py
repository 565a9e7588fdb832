"""Volumes: tiny sound ones, one of each format and filter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numcodecs
import numpy as np
import numpy.typing as npt
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ZstdCodec

from voxload.readers import Location

DATASET = "x"
"""Name of the volume in HDF5 files."""
Cube = npt.NDArray[np.int16]


def cube(size: int) -> Cube:
    """Return a cube that compresses well and of which no two rows are equal; it holds neither 0 nor -1.

    Fletcher-32 takes words of all ones for zeros: with neither in the data, damage that it cannot see is not drawn.
    """
    return (np.arange(size**3, dtype=np.int64) // 3 % 1021 + 1).astype("<i2").reshape(size, size, size)


@dataclass(frozen=True, slots=True)
class Form:
    """One way of storing a volume of int16."""

    name: str
    """What tables call it."""
    suffix: str
    """``h5``, ``zarr`` or ``npy``; names the family too."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of ``create_dataset`` or ``create_array``."""
    file_options: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of ``h5py.File``."""
    covers: bool = False
    """Whether a checksum covers the bytes of every chunk as stored."""
    covers_metadata: bool = False
    """Whether checksums cover everything else."""
    is_sharded: bool = False
    """Whether chunks share files."""

    def make(self, folder: Path, values: Cube, chunk: tuple[int, ...]) -> Location:
        """Write `values` in chunks into `folder`; shards hold two chunks along every axis but the first."""
        path = folder / f"x.{self.suffix}"
        _MAKERS[self.suffix](self, path, values, chunk)
        return Location(str(path), DATASET if self.suffix == "h5" else "")


def _hdf5(form: Form, path: Path, values: Cube, chunk: tuple[int, ...]) -> None:
    with h5py.File(path, "w", **form.file_options) as file:
        file.create_dataset(DATASET, data=values, **{"chunks": chunk, **form.options})


def _zarr(form: Form, path: Path, values: Cube, chunk: tuple[int, ...]) -> None:
    shards = (chunk[0], *(2 * width for width in chunk[1:])) if form.is_sharded else None
    zarr.create_array(path, data=values, **{"chunks": chunk, "shards": shards, "compressors": None, **form.options})


def _npy(_form: Form, path: Path, values: Cube, _chunk: tuple[int, ...]) -> None:
    np.save(path, values)


_MAKERS: dict[str, Callable[[Form, Path, Cube, tuple[int, ...]], None]] = {"h5": _hdf5, "zarr": _zarr, "npy": _npy}


def _h5(name: str, *, covers: bool = False, is_latest: bool = False, user_block: int = 0, **options: Any) -> Form:
    file_options = {"userblock_size": user_block, "libver": "latest" if is_latest else "earliest"}
    return Form(f"HDF5 {name}", "h5", options, file_options, covers=covers, covers_metadata=is_latest)


def _v2(name: str, codec: Any, *, covers: bool = False, **options: Any) -> Form:
    return Form(f"Zarr v2 {name}", "zarr", {"zarr_format": 2, "compressors": codec, **options}, covers=covers)


def _v3(name: str, *codecs: Any, covers: bool = False, is_sharded: bool = False) -> Form:
    kind = "sharded Zarr" if is_sharded else "Zarr v3"
    options = {"compressors": list(codecs) or None}
    return Form(f"{kind} {name}", "zarr", options, covers=covers, is_sharded=is_sharded)


_BITSHUFFLE = {"compression": hdf5plugin.Bitshuffle(cname="lz4")}
_BLOSC = {"compression": hdf5plugin.Blosc(cname="lz4", clevel=5, shuffle=hdf5plugin.Blosc.SHUFFLE)}

_SHORT = h5py.h5t.STD_I16LE.copy()
_SHORT.set_precision(12)
_TWELVE_BITS = h5py.Datatype(_SHORT)
"""Values of the cubes here fit in them."""
_N_BIT = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
_N_BIT.set_filter(h5py.h5z.FILTER_NBIT)

FORMS: dict[str, Form] = {
    form.name: form
    for form in (
        _h5("contiguous", chunks=None),
        _h5("raw"),
        _h5("raw, user block", user_block=512),
        _h5("gzip", compression="gzip", shuffle=True, covers=True),
        _h5("fletcher32", fletcher32=True, covers=True),
        _h5("lzf", compression="lzf", shuffle=True),
        _h5("zstd", compression=hdf5plugin.Zstd(clevel=3), shuffle=True),
        _h5("blosc", **_BLOSC),
        _h5("lz4", compression=hdf5plugin.LZ4()),
        _h5("bitshuffle", **_BITSHUFFLE),
        _h5("blosc2", compression=hdf5plugin.Blosc2(cname="lz4")),
        _h5("szip", compression="szip"),
        _h5("bzip2", compression=hdf5plugin.BZip2(), covers=True),
        _h5("scaleoffset", scaleoffset=0, shuffle=True),
        _h5("nbit", dtype=_TWELVE_BITS, dcpl=_N_BIT),
        _h5("latest raw", is_latest=True),
        _h5("latest gzip", is_latest=True, compression="gzip", shuffle=True, covers=True),
        _h5("latest fletcher32", is_latest=True, fletcher32=True, covers=True),
        _v2("raw", None),
        _v2("zlib", numcodecs.Zlib(), covers=True),
        _v2("blosc", numcodecs.Blosc()),
        _v2("delta, blosc", numcodecs.Blosc(), filters=[numcodecs.Delta("<i2")]),
        _v2("lz4", numcodecs.LZ4()),
        _v2("bz2", numcodecs.BZ2(), covers=True),
        _v3("raw"),
        _v3("gzip", GzipCodec(), covers=True),
        _v3("zstd", ZstdCodec(checksum=True), covers=True),
        _v3("blosc", BloscCodec()),
        _v3("crc32c", Crc32cCodec(), covers=True),
        _v3("raw", is_sharded=True),
        _v3("gzip", GzipCodec(), covers=True, is_sharded=True),
        _v3("crc32c", Crc32cCodec(), covers=True, is_sharded=True),
        Form("npy", "npy"),
    )
}  # fmt: skip
"""Formats and filters: nearly all are read natively, types of twelve bits through h5py, bz2 and filters of Zarr
through zarr-python."""
