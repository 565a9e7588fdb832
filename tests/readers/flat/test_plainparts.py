"""Parts of plain voxels: spans hold all that is wanted, once, within bounds, and give the stored voxels bit for bit."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.laws.reader import EXAMPLES, expected_block, outer_boxes, same_bits, to_volume, voxels
from tests.support.settled import settle
from voxload.geometry import Boundary, Box
from voxload.readers import Location, open_reader, read_block
from voxload.readers.maderead import MadeRead, PlainFile, made_read, repeat
from voxload.readers.pasting import plainparts
from voxload.readers.pasting.kernels import EXTENT, FIRST, STOP
from voxload.readers.pasting.pasteplan import ChunkShape, Wanted, plan_parts
from voxload.readers.protocol import CASTS
from voxload.readers.requests import block_requests, is_padded
from voxload.readers.scratch import address
from voxload.readers.storage.stamp import Stamp

Array = npt.NDArray[Any]
SHAPE = (3, 10, 11, 9)


def _made(path: Path, box: Box, out: Array, boundary: Boundary) -> tuple[MadeRead | None, bool]:
    """Read a block of an npy file; return how it is made again, and whether a part of it is zeros."""
    with closing(open_reader(Location(os.fspath(path), axes="CDHW"))) as reader:
        read_block(reader, box, out, boundary=boundary)
        requests = block_requests(reader.describe(), box, out, boundary=boundary)
        return made_read(reader, requests, address(out)) if requests else None, is_padded(requests, box)


@pytest.mark.parametrize("kind", ["C", "F", ">"])
def test_however_rows_are_parted_the_voxels_are_the_stored_ones(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any box, boundary, type, order of axes, gap and length of spans."""
    stored = voxels(SHAPE, "<i2", seed=3)
    path, whole = tmp_path / "x.npy", to_volume(stored, "CDHW")
    np.save(path, {"C": stored, "F": np.asfortranarray(stored), ">": stored.astype(">i2")}[kind])
    settle(path)
    monkeypatch.setattr(plainparts, "_SHORTEST_RUN", 2**20)
    for most in ("_MOST_READ", "_MOST_PARTS"):
        monkeypatch.setattr(plainparts, most, 2**20)

    @settings(max_examples=8 * EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
    @given(
        box=outer_boxes(SHAPE[1:]),
        boundary=st.sampled_from(Boundary),
        dtype=st.sampled_from((whole.dtype, *CASTS)),
        order=st.permutations(range(4)),
        gap=st.sampled_from((0, 1, 6, 40, 2**13)),
        longest=st.sampled_from((1, 2, 7, 64, 300, 2**18)),
    )
    def law(box: Box, boundary: Boundary, dtype: np.dtype[Any], order: Sequence[int], gap: int, longest: int) -> None:
        monkeypatch.setattr(plainparts, "_GAP_BYTES", gap)
        monkeypatch.setattr(plainparts, "_SPAN_BYTES", longest)
        shape = [(SHAPE[0], *box.shape)[axis] for axis in order]
        first, second = (np.full(shape, value, dtype).transpose(np.argsort(order)) for value in (5, 6))
        made, has_zeros = _made(path, box, first, boundary)
        if made is None:
            assert (first == 0).all()
            return
        if has_zeros:
            second[...] = 0
        assert not repeat([(made.at, address(second))])
        assert same_bits(np.ascontiguousarray(second), np.ascontiguousarray(first))
        if dtype == whole.dtype:
            assert same_bits(np.ascontiguousarray(second), expected_block(whole, box, boundary))

    law()


@given(
    data=st.data(),
    turned=st.permutations(range(4)),
    gap=st.sampled_from((0, 3, 20, 200)),
    longest=st.sampled_from((1, 8, 50, 2**12)),
)
def test_spans_hold_each_wanted_byte_once(data: st.DataObject, turned: Sequence[int], gap: int, longest: int) -> None:
    """In the order of the file, apart from each other, no longer than allowed, with no gap that is longer than that."""
    shape = ChunkShape.of(SHAPE, np.dtype(np.int16), turned=tuple(turned))
    sides = [sorted(data.draw(st.lists(st.integers(0, n), min_size=2, max_size=2, unique=True))) for n in SHAPE]
    box = Box(tuple(lo for lo, _ in sides), tuple(hi for _, hi in sides))
    rows = plan_parts(shape, [Wanted(box, np.zeros(box.shape, np.int16))]).table
    numbers = np.arange(int(np.prod(SHAPE))).reshape([SHAPE[axis] for axis in turned]).transpose(np.argsort(turned))
    wanted = set((numbers[box.slices] * 2).ravel().tolist())
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("_GAP_BYTES", gap), ("_SPAN_BYTES", longest), ("_MOST_READ", 2**20)):
            patch.setattr(plainparts, name, value)
        found = plainparts.spans_of(rows, 2)
    assert found is not None
    spans, parts = found
    held: list[int] = []
    end = 0
    for offset, length, begin, stop in spans.tolist():
        assert offset >= end
        assert length <= longest or stop - begin == 1
        end = offset + length
        own: list[int] = []
        for row in parts[begin:stop].astype(np.int64).tolist():
            assert 0 <= row[FIRST] < row[STOP] <= length
            steps = zip(row[EXTENT:][:6], row[EXTENT + 6 :][:6], strict=True)
            own += [offset + row[FIRST] + each for each in _offsets(list(steps))]
        assert max(np.diff(sorted(own)), default=0) <= gap + 2
        held += own
    assert sorted(held) == sorted(wanted)


def _offsets(steps: Sequence[tuple[int, int]]) -> list[int]:
    """Return the offsets of a row's voxels."""
    offsets = [0]
    for extent, stride in steps:
        offsets = [each + index * stride for each in offsets for index in range(extent)]
    return offsets


@pytest.mark.parametrize("dtype", [np.int16, np.float32])
def test_an_octant_of_a_small_file_is_learnt(tmp_path: Path, dtype: type) -> None:
    """Its bytes lie eight times as far apart as they are many, and come as one span a channel."""
    stored = voxels((4, 64, 64, 64), "<i2", seed=1)
    np.save(tmp_path / "x.npy", stored)
    settle(tmp_path)
    outs: Array = np.full((2, 4, 32, 32, 32), 7, dtype)
    made, _ = _made(tmp_path / "x.npy", Box((0, 32, 32), (32, 64, 64)), outs[0], Boundary.ZERO)
    assert made is not None
    assert not repeat([(made.at, address(outs[1]))])
    assert same_bits(outs[1], stored[:, :32, 32:, 32:].astype(dtype))


def test_a_file_that_ends_within_a_span_leaves_the_read_undone(tmp_path: Path) -> None:
    """Whatever its stamp says, as of one that is cut short between the look at it and the read."""
    shape, box = ChunkShape.of((4, 64, 64, 64), np.dtype(np.int16)), Box((0, 0, 32, 32), (4, 32, 64, 64))
    stored, out = voxels(shape.extents, "<i2", seed=1), np.zeros(box.shape, np.int16)
    rows = plan_parts(shape, [Wanted(box, out)]).table
    path = tmp_path / "x.raw"
    for nbytes, failed in ((stored.nbytes, 0), (stored.nbytes // 2, 1), (0, 1)):
        path.write_bytes(stored.tobytes()[:nbytes])
        file = PlainFile(os.fspath(path), Stamp.of(os.fspath(path)), width=2, is_swapped=False, types=(-1, -1))
        made = MadeRead.of_plain(file, rows, unit=2)
        assert made is not None
        assert repeat([(made.at, 0)]) == failed
        assert failed or same_bits(out, stored[box.slices])


@pytest.mark.parametrize(
    ("shape", "box"),
    [
        ((2048, 4, 2048), Box((0, 0, 0), (2048, 1, 2))),  # more parts than are remembered, if there were one more
        ((40, 40, 4000), Box((0, 0, 0), (40, 40, 2))),  # two voxels of each 8,000 bytes
    ],
)
def test_scattered_voxels_are_better_read_from_a_map(shape: tuple[int, ...], box: Box) -> None:
    """Of many parts, or of far more than is wanted, nothing is kept."""
    rows = plan_parts(ChunkShape.of(shape, np.dtype(np.int16)), [Wanted(box, np.zeros(box.shape, np.int16))]).table
    found = plainparts.spans_of(rows, 2)
    if shape[0] == 2048:
        assert found is not None
        assert len(found[0]) == 2048
        rows = np.concatenate([rows, rows])
    assert plainparts.spans_of(rows, 2) is None
