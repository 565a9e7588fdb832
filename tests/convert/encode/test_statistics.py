"""Figures of voxels that are counted by value, in groups, in blocks, or that are no numbers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from voxload.catalog.statistics import bin_numbers
from voxload.convert.encode.histogram import value_histograms
from voxload.convert.encode.statistics import Counts, StatisticsSum, count_channels, total_of
from voxload.errors import InternalError
from voxload.readers.protocol import Volume


def _unique(voxels: Volume) -> list[list[int]]:
    values, counts = np.unique(voxels.view(f"u{voxels.itemsize}"), return_counts=True)
    return [values.tolist(), counts.tolist()]


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "f2"])
@pytest.mark.parametrize("highest", [1, 15, 16, 127, 5000])
@pytest.mark.parametrize("size", [7, 10007, 70007])
def test_each_value_is_counted(dtype: str, highest: int, size: int) -> None:
    """Groups of small values, which are counted together, and of large ones, in any mixture, and a rest."""
    draw = np.random.default_rng(highest)
    most = min(highest, np.iinfo(dtype).max if dtype != "f2" else highest)
    voxels = draw.integers(0, most, size, endpoint=True)
    voxels[draw.integers(0, size, 3)] = most
    found = count_channels(voxels.astype(dtype)[np.newaxis])[0]
    assert found.found.tolist() == _unique(voxels.astype(dtype))


@pytest.mark.parametrize("dtype", ["u1", "u2"])
@pytest.mark.parametrize("share", [0.002, 0.03, 0.5])
def test_large_values_among_small_ones(dtype: str, share: float) -> None:
    """Rare ones, frequent ones, and stretches of nothing else; one before the first group and one in the rest."""
    draw = np.random.default_rng(3)
    voxels = draw.integers(0, 16, 90003).astype(dtype)
    large = draw.random(voxels.size) < share
    large[20000:30000] = True
    large[[0, -1]] = True
    voxels[large] = draw.integers(16, 256, large.sum())
    assert count_channels(voxels[np.newaxis])[0].found.tolist() == _unique(voxels)


def test_all_values_there_are() -> None:
    """The room for what is found is full to its end."""
    voxels = np.random.default_rng(0).permutation(1 << 16).astype(np.uint16)
    found = count_channels(voxels[np.newaxis])[0].found
    np.testing.assert_array_equal(found, [np.arange(1 << 16), np.ones(1 << 16)])


def test_tables_are_left_empty() -> None:
    """What one channel had is not counted for the next one."""
    voxels = np.stack([np.full(5000, 100, np.int16), np.full(5000, -3, np.int16), np.full(5000, 300, np.int16)])
    for _ in range(2):
        for value, found in zip((100, -3, 300), count_channels(voxels), strict=True):
            total = total_of([found])
            assert (total.count, total.minimum, total.maximum, total.mean) == (5000, value, value, value)
    wide = count_channels(voxels.astype("f4"))
    assert [total_of([found]).maximum for found in wide] == [100, -3, 300]
    assert all(sum(found.found[1]) == 5000 for found in wide)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_what_is_no_number_is_counted_apart(dtype: str) -> None:
    """NaNs and infinities anywhere in a block leave the other figures alone; so does a block of nothing else."""
    voxels = np.linspace(-2, 2, 9001).astype(dtype)
    voxels[[0, 2048, 9000]] = np.nan
    voxels[[1, 4000]] = np.inf, -np.inf
    voxels[4096:6144] = np.nan
    finite = voxels[np.isfinite(voxels)].astype("f8")
    total = total_of(count_channels(voxels[np.newaxis]))
    assert (total.count, total.nan_count, total.inf_count) == (len(finite), 3 + 2048, 2)
    assert (total.minimum, total.maximum) == (finite.min(), finite.max())
    assert total.mean == pytest.approx(finite.mean(), abs=1e-15)
    assert total.std == pytest.approx(finite.std(), rel=1e-12)


def test_no_finite_voxel() -> None:
    """There is nothing to take a mean of."""
    for dtype in ("f2", "f4"):
        total = total_of(count_channels(np.full((1, 10), np.nan, dtype)))
        assert (total.count, total.nan_count, total.bins) == (0, 10, {})


@pytest.mark.parametrize("dtype", ["i2", "f4"])
def test_no_voxel_at_all(dtype: str) -> None:
    """Each channel has figures, of nothing."""
    assert [total_of([found]).count for found in count_channels(np.empty((3, 0), dtype))] == [0, 0, 0]


def test_subnormal_and_huge_values_have_bins_of_their_own() -> None:
    """The histogram knows the exponent of any float."""
    voxels = np.array([[1e-42, -1e-42, 3e38, -3e38, 0.0, -0.0]], np.float32)
    edges, counts = total_of(count_channels(voxels)).histogram()
    np.testing.assert_array_equal(np.histogram(voxels.astype("f8"), edges)[0], counts)


def test_sums_do_not_depend_on_how_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts that are put together early give the figures of those put together at the end."""

    def added(parts: list[Counts]) -> Volume:
        total = StatisticsSum()
        for one in parts:
            total.add(one)
        found = total.total()
        return np.array([found.count, found.minimum, found.maximum, found.mean, found.std, *found.histogram()[1]])

    draw = np.random.default_rng(1)
    parts = [count_channels(draw.integers(-500, 500, (1, 4000)).astype(np.int16))[0] for _ in range(9)]
    late = added(parts)
    monkeypatch.setattr("voxload.convert.encode.statistics._FOLD", 1500)
    np.testing.assert_allclose(added(parts), late, rtol=1e-13)


def _sum(values: Volume) -> float:
    """Add up as the core does: eight sums, whose rest goes to the first."""
    whole = len(values) // 8 * 8
    sums = [float(np.add.accumulate(values[k:whole:8])[-1]) if whole else 0.0 for k in range(8)]
    for value in values[whole:]:
        sums[0] += float(value)
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]))


def _figures(values: Volume) -> tuple[float, float]:
    """Return mean and squared deviations of finite numbers by the core's rule, operation by operation."""
    count, mean, deviations = 0.0, 0.0, 0.0
    for begin in range(0, len(values), 2048):
        block = values[begin : begin + 2048].astype(np.float64) + 0.0
        middle = _sum(block) / len(block)
        after = count + len(block)
        apart, share = middle - mean, len(block) / after
        deviations += _sum((block - middle) ** 2) + apart * apart * count * share
        mean, count = mean + apart * share, after
    return mean, deviations


@pytest.mark.parametrize("dtype", ["i4", "u4", "i8", "u8", "f4", "f8"])
@pytest.mark.parametrize("size", [1, 7, 8, 9, 2047, 2049, 9001])
def test_sums_are_the_same_to_the_last_bit(dtype: str, size: int) -> None:
    """Figures depend on no machine: the order in which numbers are added is part of them."""
    draw = np.random.default_rng(size)
    bits = draw.integers(0, 2**64, size, dtype=np.uint64).view(np.int64) >> draw.integers(0, 60, size)
    voxels = draw.lognormal(0, 9, size).astype(dtype) if dtype[0] == "f" else bits.astype(dtype)
    found = count_channels(voxels[np.newaxis])[0]
    assert (found.figures.mean, found.figures.deviations) == _figures(voxels)
    wide = voxels.astype(np.float64)
    assert (found.figures.minimum, found.figures.maximum) == (wide.min(), wide.max())
    numbers, counts = np.unique(bin_numbers(wide), return_counts=True)
    assert found.found.tolist() == [numbers.tolist(), counts.tolist()]


@pytest.mark.parametrize("dtype", ["i8", "u8"])
def test_whole_numbers_that_float64_has_not(dtype: str) -> None:
    """They are rounded to the nearest, ties to even, as numpy rounds them."""
    ends = np.iinfo(dtype)
    near = [2**k + d for k in (31, 32, 52, 53, 54, 62, 63) for d in (-2049, -1025, -3, -2, -1, 0, 1, 2, 3, 1025)]
    for value in (*near, *(-one for one in near), ends.min, ends.min + 1, ends.max, ends.max - 512, ends.max - 1536):
        if ends.min <= value <= ends.max:
            found = count_channels(np.array([[value]], dtype))[0].figures
            assert found.minimum == found.maximum == found.mean == np.array(value, dtype).astype(np.float64)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_minus_zero_is_zero(dtype: str) -> None:
    """It is in the bin of zero, and no figure has its sign."""
    found = count_channels(np.full((1, 9), -0.0, dtype))[0]
    assert found.found.tolist() == [[0x8000], [9]]
    assert not np.signbit([found.figures.minimum, found.figures.maximum, found.figures.mean]).any()


def test_nans_of_any_payload_and_sign() -> None:
    """What is no number is known by no single pattern of bits."""
    patterns = [0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0xFF800001, 0xFFC00000, 0xFFFFFFFF, 0x7F800000, 0xFF800000, 0]
    total = total_of(count_channels(np.array([patterns], np.uint32).view(np.float32)))
    assert (total.nan_count, total.inf_count, total.count) == (6, 2, 1)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_finite_numbers_whose_sum_is_none() -> None:
    """They are counted, and have a minimum and a maximum; only their mean is infinite."""
    voxels = np.linspace(1e308, 1.7e308, 5000)
    found = count_channels(voxels[np.newaxis])[0]
    assert (found.figures.count, found.figures.inf_count, found.figures.nan_count) == (5000, 0, 0)
    assert (found.figures.minimum, found.figures.maximum) == (voxels[0], voxels[-1])
    assert found.found[1].sum() == 5000


@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "i8", "f8"])
def test_memory_at_any_address_that_may_not_be_written(dtype: str) -> None:
    """Voxels may lie in a mapped file, behind a header of any length."""
    voxels = np.arange(3 * 4099).reshape(3, 4099).astype(dtype)
    expected = [one.found.tolist() for one in count_channels(voxels)]
    for begin in (1, 3, 6):
        odd = np.ndarray(voxels.shape, dtype, bytearray(voxels.nbytes + 8), begin)
        odd[:] = voxels
        odd.flags.writeable = False
        assert [one.found.tolist() for one in count_channels(odd)] == expected


def test_voxels_that_are_not_next_to_each_other() -> None:
    """They are copied first; what takes addresses refuses them."""
    voxels = np.arange(2 * 6 * 8, dtype=np.uint8).reshape(2, 6, 8)
    assert count_channels(voxels[:, ::2])[1].found[0].tolist() == voxels[1, ::2].ravel().tolist()
    with pytest.raises(InternalError, match="contiguous"):
        value_histograms(voxels[:, ::2])


@pytest.mark.parametrize("dtype", [">f4", ">i8", "c8", "M8[s]", "g"])
def test_types_that_are_no_numbers_of_this_machine(dtype: str) -> None:
    """They are refused, not taken for others of their size."""
    with pytest.raises(InternalError, match="native byte order"):
        count_channels(np.zeros((1, 4), dtype))


def test_types_of_other_sizes_are_not_counted_by_value() -> None:
    """A table has no more keys than two bytes have values."""
    with pytest.raises(InternalError, match="one or two bytes"):
        value_histograms(np.zeros((1, 4), np.int32))


def test_threads_count_at_once() -> None:
    """Each has tables of its own, which it leaves empty."""
    draw = np.random.default_rng(5)
    chunks = [draw.integers(0, top, (2, 60000)).astype(kind) for top in (9, 300) for kind in ("u2", "f4", "i8")]
    expected = [[one.found.tolist() for one in count_channels(chunk)] for chunk in chunks]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            found = [[one.found.tolist() for one in told] for told in pool.map(count_channels, chunks)]
            assert found == expected
