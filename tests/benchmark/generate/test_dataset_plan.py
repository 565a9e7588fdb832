"""DatasetPlan: what fits together, what does not, and how large a data set has to be."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxload.benchmark.generate.plan import Contents, DatasetPlan, Kind, samples_for
from voxload.benchmark.generate.storage import CODECS, Codec, Extents, Storage, StoreFormat
from voxload.errors import UsageError

NPY = Storage(StoreFormat.NPY)


@given(
    extents=st.tuples(*(st.integers(1, 40),) * 4),
    widths=st.tuples(*(st.integers(1, 40),) * 4),
    axes=st.permutations("CDHW").map("".join),
    part=st.integers(1, 4000),
)
def test_parts_cover_a_sample_in_whole_chunks(extents: Extents, widths: Extents, axes: str, part: int) -> None:
    """Every voxel is in one part, no part cuts a chunk, and none is larger than its bound or one layer of chunks."""
    chunks = tuple(map(min, widths, extents))
    storage = Storage(StoreFormat.ZARR3, axes, (chunks[0], chunks[1], chunks[2], chunks[3]))
    plan = DatasetPlan(extents, "<i4", storage)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("voxload.benchmark.generate.plan.PART_BYTES", part)
        parts = list(plan.parts())
    times = np.zeros(plan.spatial, int)
    for box in parts:
        times[box.slices] += 1
        for lo, hi, chunk, extent in zip(box.start, box.stop, chunks[1:], plan.spatial, strict=True):
            assert lo % chunk == 0
            assert hi % chunk == 0 or hi == extent
        is_one_chunk = all(width <= chunk for width, chunk in zip(box.shape, chunks[1:], strict=True))
        assert box.size * extents[0] * 4 <= part or is_one_chunk
    assert np.all(times == 1)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"format": StoreFormat.NPY, "chunks": (1, 4, 4, 4)}, "contiguous"),
        ({"format": StoreFormat.RAW, "codec": Codec("gzip")}, "codec gzip"),
        ({"format": StoreFormat.ZARR2}, "no chunks"),
        ({"format": StoreFormat.ZARR3}, "no chunks"),
        ({"format": StoreFormat.HDF5, "codec": Codec("gzip")}, "contiguous storage"),
        ({"format": StoreFormat.ZARR3, "chunks": (1, 4, 4, 4), "codec": Codec("lz4")}, "codec lz4"),
        ({"format": StoreFormat.ZARR2, "chunks": (1, 4, 4, 4), "shards": (1, 8, 8, 8)}, "only zarr3"),
        ({"format": StoreFormat.ZARR3, "chunks": (1, 4, 4, 4), "shards": (1, 8, 6, 8)}, "whole chunks"),
        ({"format": StoreFormat.ZARR3, "chunks": (1, 4, 0, 4)}, "1 or more"),
        ({"format": StoreFormat.NPY, "axes": "CDHX"}, "CDHX"),
    ],
)
def test_impossible_storage_is_refused(arguments: dict[str, Any], found: str) -> None:
    """A format says what it cannot do before anything is written."""
    with pytest.raises(UsageError, match=found):
        Storage(**arguments)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"shape": (1, 4, 4, 0)}, "1 or more"),
        ({"samples": 0}, "number of samples"),
        ({"dtype": "i3"}, "dtype: found 'i3'"),
        ({"dtype": "c8"}, "complex64"),
        ({"storage": Storage(StoreFormat.NPY, "DHW"), "shape": (2, 4, 4, 4)}, "2 channels"),
        ({"storage": Storage(StoreFormat.HDF5, chunks=(1, 5, 4, 4))}, "up to the sample's"),
        ({"storage": Storage(StoreFormat.HDF5, chunks=(1, 2048, 1024, 1024)), "shape": (1, 2048, 1024, 1024)}, "each"),
        ({"contents": Contents(Kind.FLOATS)}, "values floats"),
        ({"contents": Contents(Kind.COUNTS), "dtype": "<f4"}, "values counts"),
    ],
)
def test_impossible_plans_are_refused(arguments: dict[str, Any], found: str) -> None:
    """Parts of a plan that contradict each other are named."""
    with pytest.raises(UsageError, match=found):
        DatasetPlan(**{"shape": (1, 4, 4, 4), "dtype": "<i2", "storage": NPY, **arguments})


@pytest.mark.parametrize(("name", "level"), [("gzip", 10), ("zstd", 0), ("none", 1), ("lz4", 3), ("blosc-lz4", -1)])
def test_levels(name: str, level: int) -> None:
    """A level that a codec has not is refused, and every codec has a usual one."""
    with pytest.raises(UsageError, match=f"level of codec {name}"):
        Codec(name, level)
    with pytest.raises(UsageError, match="one of none, gzip"):
        Codec("brotli")
    with pytest.raises(UsageError, match="seed"):
        Contents(Kind.PATTERN, -1)


@pytest.mark.parametrize("name", CODECS)
def test_trial_sizes_are_those_of_the_codec(name: str) -> None:
    """A trial chunk shrinks by any codec if it holds zeros, and by none if it holds noise."""
    zeros, noise = np.zeros((1, 16, 16, 16), "i4"), np.frombuffer(np.random.default_rng(0).bytes(2**14), "i4")
    size = Codec(name).stored_size(zeros)
    assert size == zeros.nbytes if name == "none" else size < zeros.nbytes / 20
    assert Codec(name).stored_size(noise) >= noise.nbytes


def test_a_plan_survives_json() -> None:
    """Plans are kept beside the data and sent to processes as JSON."""
    storage = Storage(StoreFormat.ZARR3, "DHWC", (1, 4, 4, 4), (2, 8, 8, 8), Codec("zstd", 7))
    plan = DatasetPlan((2, 8, 8, 8), ">f4", storage, Contents(Kind.FLOATS, 3), 9)
    assert DatasetPlan.from_dict(json.loads(json.dumps(plan.to_dict())), "plan") == plan
    assert plan.number(plan.name(8)) == 8


def test_data_sets_that_memory_cannot_hold() -> None:
    """The rule of MLPerf Storage: five times the memory of all nodes, rounded up to whole samples."""
    assert samples_for(100, memory_bytes=1000) == 50
    assert samples_for(100, memory_bytes=1001) == 51
    assert samples_for(10**6, memory_bytes=1000) == 1
    assert samples_for(100, memory_bytes=1000, times_memory=0.5) == 5
    for times in (0, -1, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="times memory"):
            samples_for(100, memory_bytes=1000, times_memory=times)
