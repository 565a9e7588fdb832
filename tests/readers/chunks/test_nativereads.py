"""The core's decoders: every codec is undone without Python, and damage is never taken that the careful way refuses."""

from __future__ import annotations

import bz2
import gzip
import itertools
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import h5py
import imagecodecs
import numpy as np
import numpy.typing as npt
import pytest

from voxload.errors import DataError
from voxload.geometry import Box
from voxload.readers.chunks.nativereads import NativeReads, NativeVolume
from voxload.readers.chunks.nativesources import TableSource
from voxload.readers.decode import codecs
from voxload.readers.decode.codecs import Pipeline, Step
from voxload.readers.hdf5.route import NativeRoute, find_route
from voxload.readers.pasting.pasteplan import ChunkShape, Wanted
from voxload.readers.scratch import Bytes
from voxload.readers.storage.file import FileBytes

hdf5plugin = pytest.importorskip("hdf5plugin")
pytestmark = pytest.mark.usefixtures("no_leaks")

Voxels = npt.NDArray[Any]
ROOM = 2**16
"""Bytes of the file in which chunks are put."""
RNG = np.random.default_rng(25)
COUNTS = RNG.poisson(3, (9, 10, 11))
WIDE = RNG.integers(0, 60_000, (16, 16, 16))


@dataclass(frozen=True)
class Chunk:
    """A chunk as some library stored it."""

    shape: ChunkShape
    pipeline: Pipeline
    stored: Bytes
    voxels: Voxels

    @property
    def box(self) -> Box:
        """All of it."""
        return Box((0, 0, 0), self.shape.extents)


def _hdf5(dtype: str, values: Voxels = COUNTS, **options: Any) -> Callable[[Path], Chunk]:
    def make(folder: Path) -> Chunk:
        voxels = values.astype(dtype)
        with h5py.File(folder / "x.h5", "w") as file:
            dataset = file.create_dataset("x", data=voxels, chunks=values.shape, **options)
            route = find_route(dataset)
            assert isinstance(route, NativeRoute), route
            mask, stored = dataset.id.read_direct_chunk((0, 0, 0))
            assert not mask
            return Chunk(route.shape, route.pipeline, np.frombuffer(stored, np.uint8), dataset[()])

    return make


def _stored(encode: Callable[[bytes], bytes], *steps: Step) -> Callable[[Path], Chunk]:
    def make(_folder: Path) -> Chunk:
        voxels = COUNTS.astype("<i2")
        stored = np.frombuffer(encode(voxels.tobytes()), np.uint8)
        return Chunk(ChunkShape.of(voxels.shape, voxels.dtype), Pipeline(steps, voxels.nbytes), stored, voxels)

    return make


def _sized_lz4(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + bytes(imagecodecs.lz4_encode(data))


def _summed_gzip(data: bytes) -> bytes:
    stored = gzip.compress(data)
    return stored + struct.pack("<I", google_crc32c.value(stored))


KINDS: dict[str, Callable[[Path], Chunk]] = {
    "deflate": _hdf5("<i2", compression="gzip"),
    "shuffle, deflate, fletcher32": _hdf5(">i4", compression="gzip", shuffle=True, fletcher32=True),
    "fletcher32": _hdf5("<u2", fletcher32=True),
    "lzf": _hdf5("<f4", compression="lzf", shuffle=True),
    "szip, nearest neighbour": _hdf5("<i2", compression="szip"),
    "szip, entropy coding": _hdf5(">u4", compression="szip", compression_opts=("ec", 16)),
    "szip, eight bytes": _hdf5("<f8", WIDE, compression="szip", compression_opts=("nn", 32)),
    "szip, whole blocks": _hdf5("|u1", WIDE % 7, compression="szip", compression_opts=("nn", 8)),
    "scale-offset": _hdf5("<i2", scaleoffset=0),
    "scale-offset, big": _hdf5(">i8", WIDE, scaleoffset=0, fillvalue=7),
    "scale-offset, floating": _hdf5("<f4", scaleoffset=3),
    "scale-offset, eight bytes floating": _hdf5(">f8", scaleoffset=2),
    "scale-offset, equal": _hdf5("<u4", COUNTS * 0 + 9, scaleoffset=0),
    "scale-offset, all bits": _hdf5("|u1", WIDE % 256, scaleoffset=8),
    "scale-offset, shuffle, deflate": _hdf5("<i4", scaleoffset=0, shuffle=True, compression="gzip"),
    "bzip2": _hdf5("<i2", **hdf5plugin.BZip2()),
    "zstd": _hdf5("<i2", **hdf5plugin.Zstd()),
    "lz4": _hdf5("<i4", **hdf5plugin.LZ4()),
    "lz4, blocks": _hdf5("<i4", WIDE, **hdf5plugin.LZ4(nbytes=1000)),
    "blosc lz4": _hdf5("<i2", **hdf5plugin.Blosc(cname="lz4")),
    "blosc zstd, bits": _hdf5("<f4", **hdf5plugin.Blosc(cname="zstd", shuffle=hdf5plugin.Blosc.BITSHUFFLE)),
    "blosc blosclz": _hdf5("<f8", WIDE, **hdf5plugin.Blosc(cname="blosclz", shuffle=hdf5plugin.Blosc.NOSHUFFLE)),
    "blosc2": _hdf5("<i2", **hdf5plugin.Blosc2()),
    "blosc2 delta": _hdf5("<i4", **hdf5plugin.Blosc2(filters=hdf5plugin.Blosc2.DELTA)),
    "blosc2 zstd, bits": _hdf5(">f4", WIDE, **hdf5plugin.Blosc2(cname="zstd", filters=hdf5plugin.Blosc2.BITSHUFFLE)),
    "blosc2, equal": _hdf5("<i2", COUNTS * 0, **hdf5plugin.Blosc2()),
    "bitshuffle": _hdf5("<i2", **hdf5plugin.Bitshuffle(cname="none")),
    "bitshuffle lz4": _hdf5("<f4", **hdf5plugin.Bitshuffle()),
    "bitshuffle zstd": _hdf5("<i8", WIDE, **hdf5plugin.Bitshuffle(cname="zstd")),
    "gzip": _stored(lambda data: gzip.compress(data[:500]) + gzip.compress(data[500:]), codecs.GZIP),
    "zlib": _stored(zlib.compress, codecs.DEFLATE),
    "sized lz4": _stored(_sized_lz4, codecs.LZ4_NUMCODECS),
    "gzip, crc32c": _stored(_summed_gzip, codecs.GZIP, codecs.Crc32c()),
    "bz2": _stored(bz2.compress, codecs.BZIP2),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


class Core:
    """Has the core read chunks out of a file."""

    def __init__(self, path: Path, chunk: Chunk) -> None:
        path.write_bytes(bytes(ROOM))
        self._path, self._chunk = path, chunk
        self._file = FileBytes(str(path))
        self._sizes = np.zeros(1, np.int64)
        source = TableSource(
            self._file,
            offsets=np.zeros(1, np.uint64),
            sizes=self._sizes,
            masks=np.zeros(1, np.uint32),
            nbytes=chunk.pipeline.nbytes,
        )
        volume = NativeVolume.of(
            chunk.shape, chunk.pipeline, source, grid=(1, 1, 1), target=chunk.shape.dtype, checksums=None
        )
        assert volume is not None, "the core does not know the codec"
        self._reads = NativeReads(volume)

    def read(self, stored: Bytes, box: Box) -> Voxels | None:
        """Return the voxels of a box of a chunk; None where the careful way is to be asked."""
        with self._path.open("r+b") as file:
            file.write(stored.data)
        self._sizes[0] = len(stored)
        out = np.full(box.shape, 77, self._chunk.shape.dtype)
        return out if self._reads.read([Wanted(box, out)]) is None else None

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _carefully(chunk: Chunk, stored: Bytes) -> Voxels | None:
    """Return the voxels that Python's decoders find; None where they refuse."""
    try:
        data, is_shuffled = chunk.pipeline.decode(stored)
    except DataError:
        return None
    width = chunk.shape.itemsize
    voxels = data.reshape(width, -1).T.copy() if is_shuffled else data
    kind = chunk.shape.dtype.newbyteorder(">" if chunk.shape.is_swapped else "<")
    return voxels.reshape(-1).view(kind).reshape(chunk.shape.extents)


def _damages(sound: Bytes, turns: int) -> Iterator[Bytes]:
    """Yield chunks that are not as they should be, most of them where headers are."""
    rng = np.random.default_rng(1)
    numbers = [0, 1, 2, 7, 8, 255, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63]
    for turn in range(turns):
        damaged = sound.copy()
        at = int(rng.integers(min(len(sound), (16, 64, 256, 10**9)[turn // 5 % 4])))
        match turn % 5:
            case 0:
                damaged[at] ^= 1 << rng.integers(8)
            case 1:
                damaged[at : at + 4] = rng.choice([0, 1, 0x7F, 0x80, 0xFF])
            case 2:
                form = str(rng.choice(["<I", ">I", "<Q", ">Q", "<H", ">H"]))
                size = struct.calcsize(form)
                number = int(rng.choice(numbers)) if turn % 2 else len(sound) + int(rng.integers(-3, 3))
                patch = struct.pack(form, number % 256**size)[: len(sound) - at]
                damaged[at : at + len(patch)] = np.frombuffer(patch, np.uint8)
            case 3:
                damaged = damaged[: int(rng.integers(len(sound)))]
            case _:
                other = int(rng.integers(len(sound)))
                damaged = np.concatenate([damaged[:other], rng.integers(0, 256, 3, np.uint8), damaged[at:]])
        yield damaged


@each_kind
def test_every_codec_is_undone_by_the_core(tmp_path: Path, kind: str) -> None:
    """Whole chunks and parts of them, in the library's own voxels."""
    chunk = KINDS[kind](tmp_path)
    with closing(Core(tmp_path / "chunk", chunk)) as core:
        for start, stop in itertools.product([(0, 0, 0), (2, 3, 1), (8, 0, 0)], [chunk.shape.extents, (9, 5, 3)]):
            box = Box(start, stop)
            found = core.read(chunk.stored, box)
            assert found is not None
            assert np.array_equal(found, chunk.voxels[box.slices])


def _agree(folder: Path, kind: str, turns: int) -> None:
    chunk = KINDS[kind](folder)
    left = refused = 0
    with closing(Core(folder / "chunk", chunk)) as core:
        for stored in _damages(chunk.stored, turns):
            expected, found = _carefully(chunk, stored), core.read(stored, chunk.box)
            if found is None:
                left += expected is not None
                refused += expected is None
            else:
                assert expected is not None, "the core takes what the careful way refuses"
                assert found.tobytes() == expected.astype(found.dtype).tobytes()
        assert core.read(chunk.stored, chunk.box) is not None
    assert refused > turns // 8
    assert left <= turns // 50, "the careful way would be asked more often than damage needs"


@each_kind
def test_damage_is_judged_as_the_careful_way_does(tmp_path: Path, kind: str) -> None:
    """What the core takes, Python's decoders take too, as the same voxels."""
    _agree(tmp_path, kind, 150)


@pytest.mark.long
@each_kind
def test_much_damage_is_judged_as_the_careful_way_does(tmp_path: Path, kind: str) -> None:
    """The same, for long."""
    _agree(tmp_path, kind, 6000)
