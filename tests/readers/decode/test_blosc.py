"""Blosc: blocks of a chunk, decoded by themselves, are those of the whole; damage is an error, never a crash."""

from __future__ import annotations

import numcodecs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxload.errors import DataError
from voxload.readers.decode.blosc import Blosc
from voxload.readers.decode.codecs import Crc32c, Pipeline
from voxload.readers.scratch import Bytes, scratch


def _compress(values: Bytes, codec: str, shuffle: int, width: int, block: int) -> Bytes:
    packed = numcodecs.Blosc(codec, 5, shuffle, block).encode(values.view(f"u{width}"))
    return np.frombuffer(packed, np.uint8)


@given(data=st.data())
def test_a_part_of_a_chunk_is_that_of_the_whole(data: st.DataObject) -> None:
    """Any span of any chunk, of any codec, shuffle and block size, comes out as it went in."""
    width = data.draw(st.sampled_from([1, 2, 4, 8]))
    size = width * data.draw(st.integers(1, 2**19 // width))
    is_noise = data.draw(st.booleans())
    values = np.random.default_rng(0).integers(0, 256 if is_noise else 4, size).astype(np.uint8)
    codec = data.draw(st.sampled_from(["lz4", "zstd", "blosclz", "zlib", "lz4hc"]))
    stored = _compress(values, codec, data.draw(st.integers(0, 2)), width, data.draw(st.sampled_from([0, 1, 2**12])))
    start, stop = sorted(data.draw(st.lists(st.integers(0, size), min_size=2, max_size=2, unique=True)))
    if data.draw(st.booleans()):  # as a file is read
        own = scratch.stored(len(stored))
        own[...] = stored
        stored = own
    found = Blosc().undo_part(stored, size, (start, stop))
    assert found.shape == (size,)
    assert np.array_equal(found[start:stop], values[start:stop])


def test_a_part_leaves_the_chunk_as_it_was() -> None:
    """What belongs to others, such as a chunk that is kept for the next read, is not changed."""
    values = np.arange(2**17, dtype=np.uint16).view(np.uint8)
    stored = _compress(values, "lz4", 1, 2, 2**12)
    kept = stored.copy()
    assert np.array_equal(Blosc().undo_part(kept, len(values), (0, 100))[:100], values[:100])
    assert np.array_equal(kept, stored)


def test_a_pipeline_decodes_only_the_span_it_is_asked_for() -> None:
    """Blocks outside the span are not decoded; a checksum around the chunk still covers all of it."""
    values, block = np.arange(2**17, dtype=np.uint16).view(np.uint8), 2**16
    stored = _compress(values, "lz4", 1, 2, 2**12)
    assert int(stored[8:12].view("<u4")[0]) == block
    pipeline = Pipeline((Blosc(),), len(values))
    scratch.decoded(len(values))[...] = 0xA5
    data, is_shuffled = pipeline.decode(stored, span=(block + 7, 2 * block - 1))
    assert np.array_equal(data[block : 2 * block], values[block : 2 * block])
    assert (data[:block] == 0xA5).all()
    assert (data[2 * block :] == 0xA5).all()
    assert not is_shuffled
    damaged = np.append(stored, np.zeros(4, np.uint8))
    with pytest.raises(DataError, match="CRC-32C"):
        Pipeline((Blosc(), Crc32c()), len(values)).decode(damaged, span=(0, 10))


@given(data=st.data())
def test_a_damaged_part_is_an_error_or_other_voxels(data: st.DataObject) -> None:
    """No flipped byte of header, table or blocks makes a read crash, or write outside its buffer."""
    values = np.random.default_rng(1).integers(0, 9, 2**17).astype(np.uint16).view(np.uint8)
    stored = _compress(values, "lz4", 1, 2, 2**12).copy()
    place = data.draw(st.one_of(st.integers(0, 79), st.integers(0, len(stored) - 1)))
    stored[place] ^= data.draw(st.integers(1, 255))
    start = data.draw(st.integers(0, len(values) - 2))
    try:
        found, _ = Pipeline((Blosc(),), len(values)).decode(stored, span=(start, len(values)))
    except DataError:
        return
    assert found.shape == values.shape
