"""Values of generated voxels: any block by itself, and the check that finds the one voxel that is wrong."""

from __future__ import annotations

import hashlib
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import numcodecs
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voxload.benchmark.generate.matter import MEAN_COUNT, Matter
from voxload.benchmark.generate.values import TILE_VOXELS, Noise, Pattern, Values, check_block
from voxload.errors import UsageError
from voxload.geometry import Boundary, Box, Halo, pieces

Array = npt.NDArray[Any]

DTYPES = ("u1", "i1", "u2", "i2", "u4", "i4", "f2", "f4", "f8")
KINDS: list[tuple[Callable[[np.dtype[Any], int], Values], str]] = [
    *((Pattern, dtype) for dtype in DTYPES),
    *((Noise, dtype) for dtype in ("f2", "f4", "f8")),
    *((Matter, dtype) for dtype in ("i2", "u2", "i4")),
]
SHAPE = (2, 37, 18, 41)
"""Of the sample that properties are looked at: no extent is a multiple of a lattice or a tile."""


def _filled(values: Values, box: Box, *, sample: int = 0, channels: int = SHAPE[0]) -> Array:
    out = np.empty((channels, *box.shape), values.dtype)
    values.fill(box, out, sample=sample)
    return out


def _bits(block: Array) -> Array:
    return np.ascontiguousarray(block).view(f"u{block.itemsize}")


def _digest(block: Array) -> str:
    return hashlib.sha256(block.astype(block.dtype.newbyteorder("<")).tobytes()).hexdigest()[:16]


def _outer(whole: Array, box: Box, boundary: str) -> Array:
    """Return a box that may leave the sample, by numpy alone."""
    if boundary == "periodic":
        block = whole
        for axis, (lo, hi) in enumerate(zip(box.start, box.stop, strict=True)):
            block = np.take(block, np.arange(lo, hi), axis=1 + axis, mode="wrap")
        return block
    block = np.zeros((len(whole), *box.shape), whole.dtype)
    for piece in pieces(box, whole.shape[1:], Boundary.ZERO):
        block[(slice(None), *piece.target.slices)] = whole[(slice(None), *piece.source.slices)]
    return block


@st.composite
def boxes(draw: st.DrawFn, *, margin: int = 0) -> Box:
    """Draw a box with voxels in it that leaves the sample by `margin` at most."""
    bounds = [
        sorted(draw(st.lists(st.integers(-margin, extent + margin), min_size=2, max_size=2, unique=True)))
        for extent in SHAPE[1:]
    ]
    return Box(tuple(lo for lo, _ in bounds), tuple(hi for _, hi in bounds))


@pytest.mark.parametrize(("kind", "dtype"), KINDS)
def test_a_block_alone_equals_the_slice_of_the_whole(kind: Callable[[np.dtype[Any], int], Values], dtype: str) -> None:
    """Whatever box is asked for, a voxel has one value, and `out` may have any strides."""
    values = kind(np.dtype(dtype), 3)
    whole = _filled(values, Box.whole(SHAPE[1:]), sample=5)

    @settings(max_examples=15)
    @given(box=boxes())
    def holds(box: Box) -> None:
        strided = np.empty((*box.shape[::-1], 2 * SHAPE[0]), dtype).T[::2]
        values.fill(box, strided, sample=5)
        assert np.array_equal(_bits(strided), _bits(whole[(slice(None), *box.slices)]))

    holds()


@pytest.mark.parametrize(("kind", "dtype"), [(Pattern, "f8"), (Noise, "f2"), (Matter, "i2")])
def test_tiles_leave_no_trace(kind: Callable[[np.dtype[Any], int], Values], dtype: str) -> None:
    """A box of several tiles holds what small boxes around the tiles' borders hold."""
    values, extent = kind(np.dtype(dtype), 3), 70
    whole = _filled(values, Box.whole((extent,) * 3), channels=1)
    assert whole.size > TILE_VOXELS
    for lo in (0, 29, 60):
        box = Box((lo, 3, 61), (lo + 10, extent, extent))
        assert np.array_equal(_bits(_filled(values, box, channels=1)), _bits(whole[(slice(None), *box.slices)]))


@pytest.mark.parametrize(
    ("kind", "dtype", "digest"),
    [
        (Pattern, "i2", "2c95d0094f81440c"),
        (Pattern, "f4", "2d4ae09461661e84"),
        (Pattern, "f8", "918d76dc240c8201"),
        (Noise, "f4", "e099728059ca7843"),
        (Matter, "i2", "681e85678fc65a68"),
    ],
)
def test_values_are_those_of_the_schema(kind: Callable[[np.dtype[Any], int], Values], dtype: str, digest: str) -> None:
    """Data sets on disk are verified by later versions: other values need another `generated.SCHEMA`."""
    assert _digest(_filled(kind(np.dtype(dtype), 11), Box((20, 0, 7), (40, 33, 70)), sample=2)) == digest


@pytest.mark.parametrize("dtype", DTYPES)
def test_pattern_tells_places_channels_samples_and_seeds_apart(dtype: str) -> None:
    """Equal voxels in two places are chance: one in as many as the type has values, four times that at most."""
    values, box = Pattern(np.dtype(dtype), 3), Box.whole((32, 32, 32))
    found = _filled(values, box)
    bits = 11 if dtype == "f2" else min(8 * np.dtype(dtype).itemsize, 24)
    most = 4 * found[0].size / 2**bits + 4
    others = [
        found[1],
        _filled(values, box, sample=1)[0],
        _filled(Pattern(np.dtype(dtype), 4), box)[0],
        *(np.roll(found[0], 1, axis) for axis in range(3)),
        found[0].transpose(2, 1, 0),
        found[0].transpose(1, 0, 2),
    ]
    off_diagonal = 2 * 32 * 32  # voxels that a transposition leaves where they are
    for other in others:
        assert np.count_nonzero(found[0] == other) <= most + off_diagonal
    # Whole rows never agree, even where single voxels do.
    rows = {row.tobytes() for row in found.reshape(-1, 32)}
    assert len(rows) == 2 * 32 * 32


@pytest.mark.parametrize(("dtype", "bits"), [("f2", 11), ("f4", 24), ("f8", 53)])
def test_pattern_floats_are_exact(dtype: str, bits: int) -> None:
    """Floats are whole steps in [0, 1), and use all of it."""
    found = _filled(Pattern(np.dtype(dtype), 3), Box.whole((16, 32, 32)))
    steps = found.astype(np.float64) * 2.0**bits
    assert np.array_equal(steps, np.rint(steps))
    assert found.min() >= 0
    assert found.max() < 1
    assert 0.49 < found.astype(np.float64).mean() < 0.51
    assert np.any(np.rint(steps).astype(np.int64) % 2)


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4"])
def test_pattern_integers_use_the_whole_range(dtype: str) -> None:
    """The least and the largest values occur, near enough."""
    found, limits = _filled(Pattern(np.dtype(dtype), 3), Box.whole((16, 32, 32))).astype(np.int64), np.iinfo(dtype)
    width = int(limits.max) - int(limits.min)
    assert found.min() - limits.min <= width * 0.001
    assert limits.max - found.max() <= width * 0.001


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_noise_is_finite_and_not_compressible(dtype: str) -> None:
    """No codec makes noise smaller than the one bit that is fixed allows."""
    found = _filled(Noise(np.dtype(dtype), 3), Box.whole((32, 32, 64)))
    assert np.isfinite(found).all()
    assert np.abs(found).max() < 2
    ratio = found.nbytes / len(numcodecs.Blosc("zstd", 5, numcodecs.Blosc.SHUFFLE).encode(found))
    assert ratio < 8 * found.itemsize / (8 * found.itemsize - 1) * 1.005


def test_counts_are_a_universe() -> None:
    """Counts have the mean, the clustering and the growth of structure, and compress as real ones do."""
    found = _filled(Matter(np.dtype("<i2"), 3), Box.whole((64, 128, 128)), channels=4)
    means = found.mean(axis=(1, 2, 3))
    assert np.all(np.abs(means / MEAN_COUNT - 1) < 0.15)
    variances = found.var(axis=(1, 2, 3))
    assert np.all(variances > 3 * means)  # clustered: Poisson noise alone has a variance of the mean
    assert np.all(np.diff(variances) < 0)  # earlier times are smoother
    smooth = np.log1p(found[0].astype(np.float64))
    near, far = (np.corrcoef(smooth[:-lag].ravel(), smooth[lag:].ravel())[0, 1] for lag in (2, 48))
    assert near > 0.25
    assert abs(far) < 0.1
    assert np.corrcoef(found[0].ravel(), found[1].ravel())[0, 1] > 0.3  # the same universe at two times
    chunk = found[0].tobytes()
    for stored in (zlib.compress(chunk, 1), zlib.compress(chunk, 6), numcodecs.Zstd(3).encode(chunk)):
        assert 3 < len(chunk) / len(stored) < 6


@pytest.mark.parametrize(("kind", "dtype"), [(Pattern, "u2"), (Noise, "f4"), (Matter, "i2")])
def test_no_more_than_tiles_are_in_memory(kind: Callable[[np.dtype[Any], int], Values], dtype: str) -> None:
    """Filling, and checking, 8 MiB and more of voxels takes a few MiB beside them."""
    values, box = kind(np.dtype(dtype), 3), Box.whole((32, 256, 256))
    out = np.empty((2, *box.shape), dtype)
    tracemalloc.start()
    try:
        values.fill(box, out, sample=0)
        assert check_block(values, out, sample=0, box=box, spatial=(32, 256, 256)) is None
        assert tracemalloc.get_traced_memory()[1] < 32 * TILE_VOXELS
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("boundary", ["zero", "periodic"])
@settings(max_examples=40)
@given(box=boxes(margin=50), data=st.data())
def test_the_first_wrong_voxel_is_named(boundary: str, box: Box, data: st.DataObject) -> None:
    """A right block passes, halo wider than the sample included; one flipped bit is found, and of two the first."""
    values = Pattern(np.dtype("i2"), 3)
    spatial = SHAPE[1:]
    whole = _filled(values, Box.whole(spatial), sample=1)
    block = _outer(whole, box, boundary)

    def check(found: Array) -> str | None:
        return check_block(values, found, sample=1, box=box, spatial=spatial, boundary=boundary)

    assert check(block) is None
    places = [
        (*(data.draw(st.integers(0, extent - 1)) for extent in box.shape), data.draw(st.integers(0, SHAPE[0] - 1)))
        for _ in range(2)
    ]
    for *place, channel in places:
        block[channel, place[0], place[1], place[2]] ^= 1 << data.draw(st.integers(0, 14))
    if places[0] == places[1]:
        return
    *offset, channel = min(places)
    voxel = tuple(lo + index for lo, index in zip(box.start, offset, strict=True))
    text = check(block)
    assert text is not None
    assert text.startswith(f"sample 1, channel {channel}, voxel {voxel}")
    is_outside = not Box.whole(spatial).contains(Box(voxel, tuple(index + 1 for index in voxel)))
    assert ("outside the sample" in text) == is_outside


def test_blocks_from_elsewhere_are_wrong() -> None:
    """A block of another place, sample or boundary, turned or stale, is refused with found and expected values."""
    values, spatial = Pattern(np.dtype("u1"), 3), (16, 16, 16)
    whole = _filled(values, Box.whole(spatial))
    box = Box((4, 4, 4), (12, 12, 12)).expand(Halo.parse(1))

    def check(block: Array, box: Box = box, boundary: str = "zero") -> str | None:
        return check_block(values, block, sample=0, box=box, spatial=spatial, boundary=boundary)

    right = whole[(slice(None), *box.slices)]
    assert check(right) is None
    for wrong in (
        whole[:, 4:14, 3:13, 3:13],
        right.transpose(0, 2, 1, 3),
        right[:, ::-1],
        right[::-1],
        np.zeros_like(right),
        _filled(values, box, sample=1),
    ):
        text = check(np.ascontiguousarray(wrong))
        assert text is not None
        assert "sample 0, channel" in text
    assert "a block of int8" in str(check(right.view("i1")))
    assert "(9, 10, 10)" in str(check(right[:, 1:]))
    edge = Box((-1, 0, 0), (4, 4, 4))
    periodic = _outer(whole, edge, "periodic")
    assert check(periodic, edge, "periodic") is None
    found = check(periodic, edge)
    assert (
        found
        == f"sample 0, channel 0, voxel (-1, 0, 0), outside the sample, where zeros are: {whole[0, -1, 0, 0]}, not 0"
    )


def test_minus_zero_is_not_zero() -> None:
    """Bits are compared, so that nothing that was computed with passes for stored."""
    values = Pattern(np.dtype("f4"), 3)
    block = np.full((1, 1, 1, 1), -0.0, "f4")
    assert "-0.0, not 0.0" in str(
        check_block(values, block, sample=0, box=Box((-1, 0, 0), (0, 1, 1)), spatial=(4, 4, 4))
    )


@pytest.mark.parametrize(
    ("kind", "dtype", "remedy"),
    [(Matter, "f4", "floats"), (Matter, "u1", "2 bytes"), (Noise, "i2", "pattern"), (Pattern, "c8", "1 to 8 bytes")],
)
def test_types_without_such_values_are_refused(
    kind: Callable[[np.dtype[Any], int], Values], dtype: str, remedy: str
) -> None:
    """Each kind names the types that it has."""
    with pytest.raises(UsageError, match=remedy):
        kind(np.dtype(dtype), 0)
