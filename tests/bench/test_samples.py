"""Samples of scripts: each layout holds what it says, and is found again."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from bench.harness.samples import KINDS, LAYOUTS, Sample, buffer_like, counts, voxels
from voxload.geometry import Box
from voxload.readers import open_reader

SIZE, CHUNK = 48, 16


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_sample_holds_what_it_says(tmp_path: Path, layout: str, dtype: str) -> None:
    """Whatever its layout; compressed ones take less room, but for float32's random bytes."""
    sample = Sample(tmp_path, layout, dtype, SIZE, CHUNK if LAYOUTS[layout].is_chunked else None)
    sample.write()
    box = Box((1, 2, 3), (40, 41, SIZE))
    out = np.empty((1, *box.shape), dtype)
    with closing(open_reader(sample.location)) as reader:
        reader.read_into(box, out)
        info = reader.describe()
    np.testing.assert_array_equal(out, sample.voxels(box))
    assert (info.axes, info.shape, info.dtype) == (sample.volume.axes, (1, SIZE, SIZE, SIZE), np.dtype(dtype))
    assert (info.chunks or (0, 0))[1:] == ((CHUNK,) * 3 if sample.chunk else (0,))
    share = sample.stored_bytes() / sample.plan.sample_bytes
    assert share < (0.5 if dtype == "int16" else 1.1) or LAYOUTS[layout].codec.is_none


def test_a_sample_is_found_again(tmp_path: Path) -> None:
    """It is not written twice, and a copy of it is no part of what it takes."""
    sample = counts("hdf5-gzip", tmp_path, SIZE, chunk=CHUNK)
    (path,) = sample.files()
    stored, written = sample.stored_bytes(), path.stat().st_mtime_ns
    copy = Path(sample.copy(0).path)
    assert copy.read_bytes() == path.read_bytes()
    assert counts("hdf5-gzip", tmp_path, SIZE, chunk=CHUNK).files() == (copy, path)
    assert (sample.stored_bytes(), path.stat().st_mtime_ns) == (stored, written)


def test_samples_of_two_numbers_differ() -> None:
    """Of the same number they do not, whatever the box."""
    whole = Box.whole((SIZE,) * 3)
    part = Box((5, 6, 7), (20, 20, 20))
    first = voxels("int16", whole, number=1)
    assert (first != voxels("int16", whole)).mean() > 0.2
    np.testing.assert_array_equal(first[(slice(None), *part.slices)], voxels("int16", part, number=1))


def test_buffers_begin_with_a_line_of_the_caches() -> None:
    """Whatever their type."""
    for extent in range(1, 20):
        like = np.empty((extent, 3), np.float32)
        found = buffer_like(like)
        assert (found.ctypes.data % 64, found.shape, found.dtype) == (0, like.shape, like.dtype)
