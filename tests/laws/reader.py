"""The laws of a Reader: what every implementation of voxload.readers.protocol.Reader must pass.

A test makes a stored volume, opens it, and calls `check_reader` with the reader and the whole volume as a numpy
array in (C, D, H, W). The oracle is plain numpy indexing; nothing of the library computes an expected value.
"""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import permutations, product
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from voxload.errors import UsageError, VoxloadError
from voxload.geometry import Boundary, Box
from voxload.readers import Location, ReadCost, Reader, block_cost, open_reader, read_block
from voxload.readers.protocol import CASTS

Array = npt.NDArray[Any]

DTYPES = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "?")
"""Every type of voxels, without byte order."""

AXES = tuple("".join(letters) for word in ("DHW", "CDHW") for letters in permutations(word))
"""Every order of the axes on disk."""

EXAMPLES = 12 if os.environ.get("VOXLOAD_TEST_THOROUGH") == "1" else 5
"""Random boxes a law; formats are many and boxes small."""


def voxels(shape: Sequence[int], dtype: str | np.dtype[Any] = "<i2", seed: int = 0) -> Array:
    """Return an array of random bits: every integer, and floats with infinities, NaNs and minus zero."""
    wanted = np.dtype(dtype)
    generator = np.random.default_rng([seed, *shape])
    if wanted.kind == "b":
        return generator.integers(0, 2, shape).astype(bool)
    count = int(np.prod(shape))
    return np.frombuffer(generator.bytes(count * wanted.itemsize), wanted).reshape(shape).copy()


def to_volume(stored: Array, axes: str) -> Array:
    """Return a stored array as (C, D, H, W) in native byte order, by numpy alone; C is all of (N, T, C)."""
    absent = [axis for axis in "NTCDHW" if axis not in axes]
    named = stored[(np.newaxis,) * len(absent)]
    order = "".join(absent) + axes
    turned = named.transpose([order.index(axis) for axis in "NTCDHW"])
    volume = turned.reshape(-1, *turned.shape[3:])
    return np.ascontiguousarray(volume.astype(stored.dtype.newbyteorder("=")))


def same_bits(found: Array, expected: Array) -> bool:
    """Tell whether two arrays are equal to the bit, NaNs and minus zero too."""
    return found.shape == expected.shape and found.dtype == expected.dtype and found.tobytes() == expected.tobytes()


def expected_block(whole: Array, box: Box, boundary: Boundary) -> Array:
    """Return the voxels of a box that may leave the volume: each axis taken modulo its extent, or zeros outside."""
    result = whole
    outside = np.zeros(box.shape, dtype=bool)
    for axis, (lo, hi) in enumerate(zip(box.start, box.stop, strict=True)):
        index, extent = np.arange(lo, hi), whole.shape[axis + 1]
        result = np.take(result, index, axis=axis + 1, mode="wrap")
        along = [1, 1, 1]
        along[axis] = len(index)
        outside |= ((index < 0) | (index >= extent)).reshape(along)
    if boundary is Boundary.ZERO:
        result = np.where(outside, np.zeros((), whole.dtype), result)
    return result


def inner_boxes(spatial: Sequence[int]) -> st.SearchStrategy[Box]:
    """Draw boxes that lie inside a volume; an axis may be empty."""
    pairs = [st.tuples(st.integers(0, extent), st.integers(0, extent)).map(sorted) for extent in spatial]
    return st.tuples(*pairs).map(lambda cuts: Box(tuple(cut[0] for cut in cuts), tuple(cut[1] for cut in cuts)))


def outer_boxes(spatial: Sequence[int]) -> st.SearchStrategy[Box]:
    """Draw boxes that may leave a volume, by more than its extent even."""
    starts = st.tuples(*(st.integers(-extent - 2, extent + 2) for extent in spatial))
    sizes = st.tuples(*(st.integers(1, extent + 3) for extent in spatial))
    return st.builds(lambda lo, size: Box(lo, tuple(a + b for a, b in zip(lo, size, strict=True))), starts, sizes)


def read(reader: Reader, box: Box) -> Array:
    """Read a box into a fresh array that held other bytes before."""
    info = reader.describe()
    out = (
        np.frombuffer(b"\xa5" * (info.shape[0] * box.size * info.dtype.itemsize), dtype=np.uint8)
        .copy()
        .view(info.native_dtype)
        .reshape(info.shape[0], *box.shape)
    )
    reader.read_into(box, out)
    return out


def check_reader(reader: Reader, whole: Array) -> None:
    """Check every law on a reader of a volume that equals `whole`."""
    check_description(reader, whole)
    check_random_boxes(reader, whole)
    check_channels(reader, whole)
    assert same_bits(read(reader, Box.whole(whole.shape[1:])), whole)
    check_whole_cost(reader)
    check_refusals(reader)
    check_no_reference_kept(reader)
    check_threads(reader, whole)


def check_random_boxes(reader: Reader, whole: Array) -> None:
    """Check what holds for any box, all laws on the same ones: to draw them takes longer than to read them."""
    orders = st.permutations(range(4))

    @settings(max_examples=EXAMPLES)
    @given(
        inner=inner_boxes(whole.shape[1:]),
        outer=outer_boxes(whole.shape[1:]),
        order=orders,
        steps=st.tuples(*[st.sampled_from([1, 2, -1])] * 4),
        dtype=st.sampled_from(CASTS),
        boundary=st.sampled_from(Boundary),
    )
    def law(
        inner: Box, outer: Box, order: Sequence[int], steps: Sequence[int], dtype: np.dtype[Any], boundary: Boundary
    ) -> None:
        check_box(reader, whole, inner)
        check_view(reader, whole, inner, order=order, steps=steps)
        check_cast(reader, whole, inner, order=order, dtype=dtype)
        check_block(reader, whole, outer, boundary=boundary)
        check_box_cost(reader, inner)

    law()


def check_channels(reader: Reader, whole: Array) -> None:
    """Check rule 1 for ranges of channels, of one time step or of several whole ones; others are refused."""
    info = reader.describe()
    samples, steps, channels = info.lead
    spatial = Box(tuple(extent // 3 for extent in info.spatial), info.spatial)

    @settings(max_examples=EXAMPLES)
    @given(st.tuples(*[st.integers(0, len(whole))] * 2).map(sorted))
    def law(ends: Sequence[int]) -> None:
        first, last = ends
        box = Box((first, *spatial.start), (last, *spatial.stop))
        out = np.zeros(box.shape, info.native_dtype)
        picked = np.zeros((samples, steps, channels), bool)
        picked.reshape(-1)[first:last] = True
        along = [picked.any(axis=tuple({0, 1, 2} - {axis})) for axis in range(3)]
        if not picked.any() or bool(picked[np.ix_(*along)].all()):
            reader.read_into(box, out)
            assert same_bits(out, whole[(slice(first, last), *spatial.slices)])
            assert reader.cost(box).stored_bytes <= reader.cost(spatial).stored_bytes
        else:
            _refused("channels of a read", partial(reader.read_into, box, out))

    law()


def check_description(reader: Reader, whole: Array) -> None:
    """Check that the description is that of the array."""
    info = reader.describe()
    assert info.shape == whole.shape
    assert info.native_dtype == whole.dtype
    assert info.decoded_bytes == whole.nbytes
    assert info.whole == Box.whole(whole.shape[1:])
    assert set("HW") <= set(info.axes) <= set("NTCDHW")
    assert len(set(info.axes)) == len(info.axes)
    assert info.samples * info.steps * info.lead[2] == len(whole)
    for unit in (info.chunks, info.shards):
        assert unit is None or min(unit) >= 1
    if info.chunks and info.shards:
        assert all(shard % chunk == 0 for shard, chunk in zip(info.shards, info.chunks, strict=True))


def check_boxes(reader: Reader, whole: Array) -> None:
    """Check rule 1 alone, on random boxes and on the whole volume."""

    @settings(max_examples=EXAMPLES)
    @given(inner_boxes(whole.shape[1:]))
    def law(box: Box) -> None:
        check_box(reader, whole, box)

    law()
    assert same_bits(read(reader, Box.whole(whole.shape[1:])), whole)


def check_box(reader: Reader, whole: Array, box: Box) -> None:
    """Check rule 1: any box, an empty one too, comes back bit for bit and whole."""
    assert same_bits(read(reader, box), whole[(slice(None), *box.slices)])


def check_some_boxes(reader: Reader, whole: Array) -> None:
    """Check rule 1 on a few boxes that any layout can get wrong: all, none, one voxel, a corner, a middle, a plane."""
    spatial = whole.shape[1:]
    last, half = tuple(extent - 1 for extent in spatial), tuple(extent // 2 for extent in spatial)
    corner = tuple(max(0, extent - 3) for extent in spatial)
    for box in (
        Box.whole(spatial),
        Box((0, 0, 0), (0, 0, 0)),
        Box(last, spatial),
        Box(corner, spatial),
        Box((0, 0, 0), tuple(extent + 1 for extent in half)),
        Box((half[0], 0, 0), (half[0] + 1, *spatial[1:])),
        Box((0, 0, half[2]), (*spatial[:2], half[2] + 1)),
    ):
        assert same_bits(read(reader, box), whole[(slice(None), *box.slices)]), box


def check_view(reader: Reader, whole: Array, box: Box, *, order: Sequence[int], steps: Sequence[int]) -> None:
    """Check rules 1 and 2: `out` may have any strides; its voxels are filled and its neighbours not touched."""
    canary = voxels((1,), whole.dtype, seed=9)[0]
    shape = (whole.shape[0], *box.shape)
    frame = np.full([shape[axis] * abs(steps[axis]) + 2 for axis in order], canary)
    inside = frame[(slice(1, -1),) * 4].transpose(np.argsort(order))
    out = inside[tuple(slice(None, None, step) for step in steps)]
    mask = np.zeros(frame.shape, dtype=bool)
    mask[(slice(1, -1),) * 4].transpose(np.argsort(order))[tuple(slice(None, None, step) for step in steps)] = True
    before = (out.shape, out.strides, out.dtype, out.__array_interface__["data"])
    reader.read_into(box, out)
    assert (out.shape, out.strides, out.dtype, out.__array_interface__["data"]) == before
    assert same_bits(np.ascontiguousarray(out), whole[(slice(None), *box.slices)])
    rest = frame[~mask]
    assert same_bits(rest, np.full(rest.shape, canary))


def check_cast(reader: Reader, whole: Array, box: Box, *, order: Sequence[int], dtype: np.dtype[Any]) -> None:
    """Check rule 1 for the other types that `out` may have: voxels are what numpy's ``astype`` makes of them."""
    shape = (whole.shape[0], *box.shape)
    out = np.full([shape[axis] for axis in order], 99, dtype).transpose(np.argsort(order))
    reader.read_into(box, out)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = whole[(slice(None), *box.slices)].astype(dtype)
    is_none = np.isnan(expected)  # whose bits say nothing
    assert np.array_equal(np.isnan(out), is_none)
    assert same_bits(out[~is_none], expected[~is_none])


def check_block(reader: Reader, whole: Array, box: Box, *, boundary: Boundary) -> None:
    """Check that a block with its halo is the volume continued by zeros, or by itself."""
    out = np.full((whole.shape[0], *box.shape), voxels((1,), whole.dtype, seed=8)[0])
    read_block(reader, box, out, boundary=boundary)
    assert same_bits(out, expected_block(whole, box, boundary))
    assert block_cost(reader, box, boundary=boundary).stored_bytes >= 0


def check_cost(reader: Reader) -> None:
    """Check rule 3 alone, on random boxes and on the whole volume."""
    check_whole_cost(reader)

    @settings(max_examples=EXAMPLES)
    @given(inner_boxes(reader.describe().spatial))
    def law(box: Box) -> None:
        check_box_cost(reader, box)

    law()


def check_whole_cost(reader: Reader) -> None:
    """Check rule 3, as planned: the whole volume costs its chunks and no more, and an empty box nothing."""
    info = reader.describe()
    whole = reader.cost(info.whole)
    if info.chunks is None:
        assert whole == ReadCost(0, info.decoded_bytes, info.decoded_bytes)
    else:
        counts = [-(-extent // width) for extent, width in zip(info.shape, info.chunks, strict=True)]
        if info.samples * info.steps > 1:  # a chunk of several time steps holds no range of channels
            counts[0] = info.shape[0]
        assert whole.chunks <= np.prod(counts)
        assert whole.decoded_bytes == whole.chunks * np.prod(info.chunks) * info.dtype.itemsize
    assert reader.cost(Box((1, 1, 1), (1, 1, 1))) == ReadCost()


def check_box_cost(reader: Reader, box: Box) -> None:
    """Check rule 3, as planned: a box costs the chunks that hold it and no more."""
    info = reader.describe()
    cost, whole = reader.cost(box), reader.cost(info.whole)
    assert cost.chunks <= whole.chunks
    assert cost.stored_bytes <= whole.stored_bytes
    if info.chunks is None:
        assert cost.stored_bytes == info.shape[0] * box.size * info.dtype.itemsize
    else:
        channels = info.shape[0] if info.samples * info.steps > 1 else -(-info.shape[0] // info.chunks[0])
        places = (set(range(lo, hi)) for lo, hi in zip(box.start, box.stop, strict=True))
        touched = [len({i // width for i in place}) for place, width in zip(places, info.chunks[1:], strict=True)]
        assert cost.chunks <= channels * np.prod(touched)


def check_refusals(reader: Reader) -> None:
    """Check rule 5: a wrong call is refused as UsageError that names the volume, and `out` stays as it was."""
    info = reader.describe()
    depth, height, width = info.spatial
    inside = Box.whole(info.spatial)
    name = info.location.path
    for box in (
        Box((-1, 0, 0), (1, 1, 1)),
        Box((0, 0, 0), (depth + 1, 1, 1)),
        Box((0, height, 0), (1, height + 1, 1)),
        Box((0, 0), (1, 1)),
        Box((0, 0, 0, 0), (info.shape[0] + 1, 1, 1, 1)),
        Box((0, 0, 0, 0), (1, 1, 1, width + 1)),
        Box((0, 0, 0, 0, 0), (1, 1, 1, 1, 1)),
    ):
        out = np.zeros(box.shape if len(box.start) == 4 else (info.shape[0], *box.shape), info.native_dtype)
        _refused(name, partial(reader.read_into, box, out))
        _refused(name, partial(reader.cost, box))
    other = np.dtype("f8") if info.native_dtype != np.dtype("f8") else np.dtype("i4")
    shape = (info.shape[0], depth, height, width)
    wrong = [
        np.zeros(shape, other),
        np.zeros((shape[0] + 1, *shape[1:]), info.native_dtype),
        np.zeros((*shape[:3], width + 1), info.native_dtype),
        np.zeros(shape[1:], info.native_dtype),
    ]
    if info.native_dtype.itemsize > 1:
        wrong.append(np.zeros(shape, info.native_dtype.newbyteorder()))
    frozen = np.zeros(shape, info.native_dtype)
    frozen.flags.writeable = False
    for out in (*wrong, frozen):
        _refused(name, partial(reader.read_into, inside, out))
        _refused(name, partial(read_block, reader, inside, out, boundary=Boundary.ZERO))
        assert not out.any()


def check_no_reference_kept(reader: Reader) -> None:
    """Check rule 2: nobody holds `out` once the call is over."""

    class Watched(np.ndarray[Any, np.dtype[Any]]):
        """An array that can be watched by a weak reference."""

    info = reader.describe()
    out = np.zeros(info.shape, info.native_dtype).view(Watched)
    watcher = weakref.ref(out)
    reader.read_into(info.whole, out)
    del out
    gc.collect()
    assert watcher() is None


def check_threads(reader: Reader, whole: Array, *, threads: int = 4) -> None:
    """Check rule 4: many threads at once get the bytes that one gets."""
    cuts = [[(0, extent), (0, (extent + 1) // 2), (extent // 2, extent)] for extent in whole.shape[1:]]
    boxes = [Box(tuple(c[0] for c in cut), tuple(c[1] for c in cut)) for cut in product(*cuts)]
    with ThreadPoolExecutor(threads) as pool:
        found = list(pool.map(lambda box: (read(reader, box), reader.cost(box)), boxes))
    for box, (block, cost) in zip(boxes, found, strict=True):
        assert same_bits(block, whole[(slice(None), *box.slices)])
        assert cost == reader.cost(box)


def _refused(name: str, call: Callable[[], object]) -> None:
    try:
        call()
    except UsageError as error:
        message = str(error)
        assert name in message, message
        assert "\n" not in message, message
        return
    raise AssertionError("a wrong call was not refused")


def check_fault(location: Location, error: type[VoxloadError], words: Sequence[str], *, fills: bool) -> None:
    """Check rule 5: reading a broken volume raises `error`, in one line with its path and `words`.

    `fills` tells whether ``missing="fill"`` must read it: true for what was never written, false for damage.
    """
    kind, message = outcome(location, "error")
    assert kind is error, (kind, message)
    assert "\n" not in message, message
    assert location.path.removeprefix("file://") in message, message
    assert all(word in message for word in words), message
    assert outcome(location, "fill") == ((None, "") if fills else (kind, message))


def outcome(location: Location, missing: str) -> tuple[type[VoxloadError] | None, str]:
    """Read a whole volume; return what was raised. The error itself is let go: it holds all that it passed."""
    try:
        reader = open_reader(location, missing=missing)
        try:
            read(reader, reader.describe().whole)
        finally:
            reader.close()
    except VoxloadError as error:
        return type(error), str(error)
    return None, ""
