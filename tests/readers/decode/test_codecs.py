"""Decoders: what their format allows decodes, and damage is an error that leaves other memory alone."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import imagecodecs
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from voxload.errors import DataError
from voxload.readers import Location, open_reader
from voxload.readers.decode.codecs import GZIP, Pipeline
from voxload.readers.hdf5.route import NativeRoute, find_route
from voxload.readers.scratch import scratch

hdf5plugin = pytest.importorskip("hdf5plugin")

CANARY = 0xA5

FILTERS: dict[str, dict[str, Any]] = {
    "szip": {"compression": "szip"},
    "blosc2": dict(hdf5plugin.Blosc2()),
    "blosc2 delta": dict(hdf5plugin.Blosc2(filters=hdf5plugin.Blosc2.DELTA)),
    "bitshuffle": dict(hdf5plugin.Bitshuffle(cname="none")),
    "bitshuffle lz4": dict(hdf5plugin.Bitshuffle()),
    "bitshuffle zstd": dict(hdf5plugin.Bitshuffle(cname="zstd")),
}
"""Name to the options of a dataset."""


def _stored_chunk(
    path: Path, stored: npt.NDArray[Any], options: dict[str, Any]
) -> tuple[Pipeline, npt.NDArray[np.uint8]]:
    """Write an array as one chunk; return how to decode it, and the chunk as stored."""
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", data=stored, chunks=stored.shape, **options)
        route = find_route(dataset)
        assert isinstance(route, NativeRoute), route
        return route.pipeline, np.frombuffer(dataset.id.read_direct_chunk((0, 0, 0))[1], np.uint8)


def _guarded(pipeline: Pipeline) -> npt.NDArray[np.uint8]:
    """Return the bytes behind this thread's buffer for a decoded chunk."""
    guard = scratch.decoded(pipeline.nbytes + 4096)[pipeline.nbytes :]
    guard[...] = CANARY
    return guard


@pytest.mark.parametrize("name", FILTERS)
def test_damage_is_an_error_or_other_values(tmp_path: Path, name: str) -> None:
    """A damaged chunk decodes to its size or is an error, and nothing is written beyond it; cut short, it is one."""
    stored = np.random.default_rng(0).poisson(3, (9, 10, 11)).astype("<i2")
    pipeline, chunk = _stored_chunk(tmp_path / "x.h5", stored, FILTERS[name])
    assert pipeline.decode(chunk)[0].tobytes() == stored.tobytes()
    rng, refused, guard = np.random.default_rng(1), 0, _guarded(pipeline)
    for turn in range(600):
        damaged = chunk.copy()
        at = rng.integers(min(len(chunk), (16, 64, 256, 10**9)[turn % 4]))
        if turn % 3 == 0:
            damaged[at] ^= 1 << rng.integers(8)
        elif turn % 3 == 1:
            damaged[at : at + 4] = rng.choice([0, 1, 0x7F, 0x80, 0xFF])
        else:
            damaged = np.concatenate([damaged, rng.integers(0, 256, 9, np.uint8)])
        try:
            data, _ = pipeline.decode(damaged)
            assert data.nbytes == stored.nbytes
        except DataError:
            refused += 1
        assert (guard == CANARY).all()
    assert refused >= 100
    for length in {*range(40), *rng.integers(len(chunk), size=60).tolist()}:
        with pytest.raises(DataError, match="found"):
            pipeline.decode(chunk[:length])


def test_a_difference_from_what_is_not_undone_yet_is_refused(tmp_path: Path) -> None:
    """Blosc2 would take it from whatever lay in memory: a chunk whose flipped bit names a filter before the delta."""
    stored = np.random.default_rng(0).poisson(3, (9, 10, 11)).astype("<i4")
    pipeline, chunk = _stored_chunk(tmp_path / "x.h5", stored, FILTERS["blosc2 delta"])
    (start,) = struct.unpack_from(">I", chunk.data, 11)
    assert chunk[start + 16 : start + 22].tolist() == [0, 0, 0, 0, 0, 3]
    for place in range(16, 21):
        for number in (1, 2, 3):
            damaged = chunk.copy()
            damaged[start + place] = number
            with pytest.raises(DataError, match="with filters"):
                pipeline.decode(damaged)


@pytest.mark.parametrize("name", ["blosc2", "bitshuffle lz4", "bitshuffle zstd", "szip"])
@pytest.mark.parametrize("size", [2**20, 2**31, 2**40])
def test_sizes_in_headers_are_not_believed(tmp_path: Path, name: str, size: int) -> None:
    """A header that announces more than a chunk holds is refused before anything is allocated for it."""
    pipeline, chunk = _stored_chunk(tmp_path / "x.h5", np.ones((8, 8, 8), "<i2"), FILTERS[name])
    offset, form = {"blosc2": (30, ">Q"), "szip": (0, "<I")}.get(name, (0, ">Q"))
    damaged = chunk.copy()
    struct.pack_into(form, damaged.data, offset, size % 2**32 if form == "<I" else size)
    tracemalloc.start()
    with pytest.raises(DataError, match=r"instead of"):
        pipeline.decode(damaged)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**17


def test_bitshuffled_blocks_as_large_as_what_they_hold(laws: ModuleType, tmp_path: Path) -> None:
    """A block that LZ4 made no smaller is LZ4 all the same, and elements beyond the last eight are stored bare."""
    rng = np.random.default_rng(0)
    while True:  # 64 bytes that LZ4 stores in 64: most of them random, a few repeated
        block = rng.integers(0, 256, 64).astype(np.uint8)
        block[30 : 30 + rng.integers(4, 12)] = 7
        packed = bytes(imagecodecs.lz4_encode(block.tobytes()))
        if len(packed) == 64:
            break
    rest = rng.integers(0, 256, 32).astype(np.uint8).tobytes()
    chunk = struct.pack(">QI", 160, 64) + 2 * (struct.pack(">I", 64) + packed) + rest
    with h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = file.create_dataset("x", (5, 4, 1), "<f8", chunks=(5, 4, 1), **hdf5plugin.Bitshuffle())
        dataset.id.write_direct_chunk((0, 0, 0), chunk)
    with h5py.File(tmp_path / "x.h5") as file:
        expected = file["x"][()]
    assert expected.tobytes()[128:] == rest
    reader = open_reader(Location(str(tmp_path / "x.h5"), "x"))
    assert reader.describe().route == "native"
    assert laws.same_bits(laws.read(reader, reader.describe().whole), expected[np.newaxis])
    reader.close()


@given(
    parts=st.lists(st.binary(max_size=3000), min_size=1, max_size=6),
    cut=st.integers(1, 30),
    flip=st.integers(0, 10**6),
)
@example(parts=[b"", b"x" * 70_000, b"", b"y"], cut=1, flip=100)
@example(parts=[b"", b"x", b""], cut=20, flip=0)
@example(parts=[b"", b"x", b""], cut=21, flip=0)
def test_gzip_members_decode_in_turn(parts: list[bytes], cut: int, flip: int) -> None:
    """What several members hold is the chunk; too much, too little and damage are errors."""
    whole = b"".join(parts)
    members = [gzip.compress(part) for part in parts]
    data = np.frombuffer(b"".join(members), np.uint8)
    pipeline = Pipeline((GZIP,), len(whole))
    assert pipeline.decode(data)[0].tobytes() == whole
    guard = _guarded(pipeline)
    ends = accumulate(map(len, members))
    is_hurt = any(end > len(data) - cut for end, part in zip(ends, parts, strict=True) if part)
    if is_hurt or len(parts) == 1:
        with pytest.raises(DataError, match="found"):
            pipeline.decode(data[:-cut])
    else:  # what is missing held nothing
        with suppress(DataError):
            assert pipeline.decode(data[:-cut])[0].tobytes() == whole
    for size in {max(0, len(whole) - 1), len(whole) + 1} - {len(whole), len(parts[0])}:
        with pytest.raises(DataError, match="found"):
            Pipeline((GZIP,), size).decode(data)
    damaged = data.copy()
    damaged[flip % len(data)] ^= 0x10
    with suppress(DataError):  # time, system and name in a member's header are under no checksum
        assert pipeline.decode(damaged)[0].tobytes() == whole
    assert (guard == CANARY).all()


def test_many_tiny_gzip_members_take_no_longer_than_their_bytes() -> None:
    """A chunk of empty members is walked once, not copied for each of them."""
    data = np.frombuffer(gzip.compress(b"") * 20_000 + gzip.compress(b"x"), np.uint8)
    assert Pipeline((GZIP,), 1).decode(data)[0].tobytes() == b"x"
