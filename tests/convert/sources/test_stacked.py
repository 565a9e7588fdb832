"""Stacked sources: the channels are those of the variables, in their order, whatever each looks like on disk."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping
from itertools import permutations
from math import prod
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.laws.source import Array, check_source, coordinates, read_box
from voxload.convert.layout import Wishes, plan_layout
from voxload.convert.plan.tiles import LIBRARY_BYTES, Budget, Demand, jobs_in_memory, plan_tiling
from voxload.convert.sources import Hints, Source, open_sources
from voxload.convert.sources.stacked import StackedSource
from voxload.errors import DataError, UsageError
from voxload.geometry import Box
from voxload.readers.axes import AxisOrder

ORDERS = ["".join(letters) for axes in ("DHW", "CDHW") for letters in permutations(axes)]
KINDS = ["npy", "npy in Fortran order", "npz deflated", "hdf5", "hdf5 chunked", "zarr"]


def stored(path: Path, kind: str, volume: Array, axes: str) -> Source:
    """Write a (C, D, H, W) volume in some way and return its source; axes without C take its first channel."""
    turned = AxisOrder(axes).view(volume)
    if kind.startswith("npy"):
        path = path.with_suffix(".npy")
        np.save(path, np.asarray(turned, order="F" if "Fortran" in kind else "C"))
    elif kind.startswith("npz"):
        path = path.with_suffix(".npz")
        np.savez_compressed(path, x=np.ascontiguousarray(turned))  # else numpy turns the axes of some round
    elif kind.startswith("hdf5"):
        path = path.with_suffix(".h5")
        chunks = tuple(max(1, extent // 2) for extent in turned.shape) if "chunked" in kind else None
        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=turned, chunks=chunks, compression="gzip" if chunks else None)
    else:
        path = path.with_suffix(".zarr")
        chunks = tuple(max(1, extent // 2) for extent in turned.shape)
        made = zarr.create_array(
            path, shape=turned.shape, dtype=turned.dtype, chunks=chunks, config={"write_empty_chunks": True}
        )
        made[...] = turned
    (source,) = open_sources(path, Hints(axes=axes))
    return source


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    spatial=st.tuples(*[st.integers(1, 7)] * 3),
    dtype=st.sampled_from(["u1", "<i2", ">i4", "f2", "<f4", ">f8"]),
    parts=st.lists(
        st.tuples(st.sampled_from(KINDS), st.sampled_from(ORDERS), st.integers(1, 3)), min_size=1, max_size=5
    ),
)
def test_no_voxel_moves(
    tmp_path_factory: pytest.TempPathFactory,
    *,
    spatial: tuple[int, int, int],
    dtype: str,
    parts: list[tuple[str, str, int]],
) -> None:
    """Variables of any format, order of the axes and number of channels keep the law of sources, once stacked."""
    folder = tmp_path_factory.mktemp("stacked")
    slowest = {axes.replace("C", "")[0] for kind, axes, _ in parts if kind.startswith("npz")}
    counts = [count if "C" in axes else 1 for _, axes, count in parts]
    draw = np.random.default_rng(len(parts))
    variables: dict[str, Source] = {}
    volumes: list[Array] = []
    for number, ((kind, axes, _), count) in enumerate(zip(parts, counts, strict=True)):
        volume = draw.integers(0, 100, (count, *spatial)).astype(dtype)
        if kind == "zarr":
            volume = volume.astype(np.dtype(dtype).newbyteorder("="))
        volumes.append(volume.astype(np.dtype(dtype).newbyteorder("=")))
        variables[f"v{number}"] = stored(folder / f"v{number}", kind, volume, axes)
    if len(slowest) > 1:
        with pytest.raises(UsageError, match="compressed stream of planes"):
            StackedSource.of("all", variables, subject="sample 'x'")
        return
    source = StackedSource.of("all", variables, subject="sample 'x'")
    expected = np.concatenate(volumes)
    cube = source.describe()
    assert (cube.dataset, cube.volume_shape, cube.is_sequential) == ("all", expected.shape, bool(slowest))
    assert {cube.path, *cube.companions} == {one.describe().path for one in variables.values()}
    check_source(source, expected)


def memory_of(source: Source, box: Box) -> int:
    """Return the memory that reading a box takes beside the array, after a first reading."""
    with source.open() as read_into:
        cube = source.describe()
        out = np.empty((cube.volume_shape[0], *box.shape), cube.dtype)
        read_into(box, out)
        tracemalloc.start()
        read_into(box, out)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return peak


@pytest.mark.parametrize("axes", ["DHWC", "WHD", "DHW", "CDHW"])
def test_what_is_turned_is_counted(tmp_path: Path, axes: str) -> None:
    """A variable that lies in another order than the first is read beside the array: the description says how much."""
    volume = coordinates((3 if "C" in axes else 1, 40, 40, 40))
    variables = {
        "first": stored(tmp_path / "first", "npy", coordinates((1, 40, 40, 40)), "DHW"),
        "other": stored(tmp_path / "other", "npy", volume, axes),
    }
    source = StackedSource.of("all", variables, subject="x")
    turned = 0 if axes in ("DHW", "CDHW") else volume.nbytes // 40**3
    assert source.describe().turned_bytes == turned
    peak = memory_of(source, Box.whole((40, 40, 40)))
    assert turned * 40**3 <= peak < turned * 40**3 + 2**16
    np.testing.assert_array_equal(read_box(source, Box.whole((40, 40, 40)))[1:], volume)


@settings(max_examples=60)
@given(extents=st.tuples(*[st.integers(1, 90)] * 3), turned=st.integers(0, 24), spare=st.integers(0, 2**20))
def test_tiles_leave_room_for_what_is_turned(extents: tuple[int, int, int], turned: int, spare: int) -> None:
    """All tiles in memory, and one of them turned beside, keep within what is allowed and is projected."""
    widths = tuple(min(16, extent) for extent in extents)
    layout = plan_layout((3, *extents), 4, is_sharded=True, wishes=Wishes(chunks=(widths[0], widths[1], widths[2])))
    least = prod(widths) * (12 + turned)
    allowed = LIBRARY_BYTES + jobs_in_memory(1) * prod(layout.chunks) * 4 + least + spare
    tiling = plan_tiling(layout, 4, demand=Demand(extents, (0, 1, 2), turned_bytes=turned), budget=Budget(allowed))
    assert tiling.projected <= allowed
    assert tiling.largest_tile * (tiling.buffers * 12 + turned) <= least + spare
    with pytest.raises(UsageError, match="memory of the conversion"):
        plan_tiling(
            layout, 4, demand=Demand(extents, (0, 1, 2), turned_bytes=turned), budget=Budget(allowed - spare - 1)
        )


def _pair(folder: Path, **volumes: Array) -> Mapping[str, Source]:
    return {name: stored(folder / name, "npy", volume, "DHW") for name, volume in volumes.items()}


def test_unlike_variables_are_refused(tmp_path: Path) -> None:
    """The message names the variable that differs from most, its file, one that does not, and a way out."""
    usual, other = coordinates((1, 4, 5, 6)), coordinates((1, 4, 5, 7))
    variables = _pair(tmp_path, vx=other, vy=usual, vz=usual)
    found = r"sample 'u': found variable 'vx' \(.*vx\.npy\) with extents \(D, H, W\) = \(4, 5, 7\)"
    with pytest.raises(UsageError, match=rf"{found}, expected .*\(4, 5, 6\), as 'vy' \(.*vy\.npy\) has; .*resample"):
        StackedSource.of("v", variables, subject="sample 'u'")
    variables = _pair(tmp_path, vx=usual, vy=usual, vz=usual.astype("f4"))
    with pytest.raises(UsageError, match=r"variable 'vz' .*with type float32, expected type int32, as 'vx'"):
        StackedSource.of("v", variables, subject="sample 'u'")
    # One type in another byte order is the same once read.
    StackedSource.of("v", _pair(tmp_path, vx=usual, vy=usual.astype(">i4")), subject="sample 'u'")


def test_streams_that_lie_across_each_other_are_refused(tmp_path: Path) -> None:
    """No order of boxes serves both; with what can be read anywhere, a stream's order is taken."""
    volume = coordinates((1, 4, 5, 6))
    across = {axes: stored(tmp_path / axes, "npz deflated", volume, axes) for axes in ("DHW", "WHD", "DWH")}
    with pytest.raises(UsageError, match=r"variable 'WHD' .*stream of planes across W, expected .*across D, as 'DHW'"):
        StackedSource.of("v", across, subject="x")
    plain = stored(tmp_path / "plain", "npy", volume, "DHW")
    source = StackedSource.of("v", {"plain": plain, "WHD": across["WHD"]}, subject="x")
    assert source.describe().spatial_order == (2, 1, 0)
    check_source(source, np.concatenate([volume, volume]))
    source = StackedSource.of("v", {"DHW": across["DHW"], "DWH": across["DWH"]}, subject="x")
    check_source(source, np.concatenate([volume, volume]))


def test_a_file_that_is_cut_is_named(tmp_path: Path) -> None:
    """An error of one variable is that of its file; the other files are closed all the same."""
    volume = coordinates((1, 6, 6, 6))
    variables = _pair(tmp_path, vx=volume, vy=volume)
    source = StackedSource.of("v", variables, subject="x")
    with (tmp_path / "vy.npy").open("r+b") as file:
        file.truncate(500)
    with pytest.raises(DataError, match=r"vy\.npy: found the end of the file"):
        read_box(source, Box.whole((6, 6, 6)))
