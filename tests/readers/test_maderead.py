"""MadeRead: what the core makes again is bit for bit what was read, from files that are what they were alone."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.laws.reader import EXAMPLES, expected_block, outer_boxes, same_bits, to_volume, voxels
from tests.support.openfiles import open_files
from tests.support.settled import settle
from voxload.geometry import Boundary, Box
from voxload.readers import Location, Reader, open_reader, read_block
from voxload.readers.maderead import MadeRead, made_read, repeat
from voxload.readers.protocol import CASTS, Window
from voxload.readers.requests import block_requests, is_padded
from voxload.readers.scratch import address

Array = npt.NDArray[Any]
SHAPE = (3, 10, 11, 9)
STORED = voxels(SHAPE, "<i2", seed=3)


def _npy(folder: Path, stored: Array) -> Location:
    np.save(folder / "x.npy", stored)
    return Location(os.fspath(folder / "x.npy"), axes="CDHW")


def _hdf5(**how: Any) -> Callable[[Path], Location]:
    def write(folder: Path) -> Location:
        with h5py.File(folder / "x.h5", "w") as file:
            file.create_dataset("x", data=STORED, **how)
        return Location(os.fspath(folder / "x.h5"), "x", axes="CDHW")

    return write


def _zarr(**how: Any) -> Callable[[Path], Location]:
    def write(folder: Path) -> Location:
        zarr.create_array(folder / "x.zarr", data=STORED, **how)
        return Location(os.fspath(folder / "x.zarr"), axes="CDHW")

    return write


CHUNKS = (2, 4, 4, 5)
KINDS: dict[str, Callable[[Path], Location]] = {
    "npy": lambda folder: _npy(folder, STORED),
    "npy, Fortran's order": lambda folder: _npy(folder, np.asfortranarray(STORED)),
    "npy, big-endian": lambda folder: _npy(folder, STORED.astype(">i2")),
    "hdf5 contiguous": _hdf5(),
    "hdf5 contiguous, big-endian": _hdf5(dtype=">i2"),
    "hdf5 chunked": _hdf5(chunks=CHUNKS),
    "hdf5 gzip": _hdf5(chunks=CHUNKS, compression="gzip", shuffle=True),
    "hdf5 checksummed": _hdf5(chunks=CHUNKS, compression="lzf", fletcher32=True),
    "zarr": _zarr(chunks=CHUNKS),
    "zarr raw": _zarr(chunks=CHUNKS, compressors=None),
    "zarr 2": _zarr(chunks=CHUNKS, zarr_format=2),
    "zarr sharded": _zarr(chunks=CHUNKS, shards=(4, 8, 8, 10)),
    "zarr sharded raw": _zarr(chunks=CHUNKS, shards=(4, 8, 8, 10), compressors=None),
}


@pytest.fixture(params=KINDS)
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """Return a volume that was written a while ago."""
    written = KINDS[request.param](tmp_path)
    settle(tmp_path)
    return written


@pytest.fixture
def reader(location: Location) -> Iterator[Reader]:
    """Yield it, open."""
    opened = open_reader(location)
    yield opened
    opened.close()


def _made(reader: Reader, box: Box, out: Array, boundary: Boundary) -> tuple[MadeRead | None, bool]:
    """Read a block; return how it is made again, and whether a part of it is zeros."""
    read_block(reader, box, out, boundary=boundary)
    requests = block_requests(reader.describe(), box, out, boundary=boundary)
    made = made_read(reader, requests, address(out)) if requests else None
    return made, is_padded(requests, box)


def _again(made: MadeRead, out: Array) -> bool:
    """Make a read again into an array of the same form."""
    assert address(out) % made.unit == 0
    return not repeat([(made.at, address(out))])


def test_any_block_is_made_again_bit_for_bit(reader: Reader) -> None:
    """Any box, boundary, type and order of the array's axes."""
    whole = to_volume(STORED, "CDHW")

    @settings(max_examples=4 * EXAMPLES)
    @given(
        box=outer_boxes(SHAPE[1:]),
        boundary=st.sampled_from(Boundary),
        dtype=st.sampled_from((whole.dtype, *CASTS)),
        order=st.permutations(range(4)),
    )
    def law(box: Box, boundary: Boundary, dtype: np.dtype[Any], order: Sequence[int]) -> None:
        shape = [(SHAPE[0], *box.shape)[axis] for axis in order]
        first, second = (np.full(shape, value, dtype).transpose(np.argsort(order)) for value in (5, 6))
        made, has_zeros = _made(reader, box, first, boundary)
        if made is None:
            assert not block_requests(reader.describe(), box, first, boundary=boundary)
            return
        if has_zeros:
            second[...] = 0
        assert _again(made, second)
        expected = expected_block(whole, box, boundary)
        if dtype == whole.dtype:
            assert same_bits(np.ascontiguousarray(second), expected)
        assert same_bits(np.ascontiguousarray(second), np.ascontiguousarray(first))

    law()


@pytest.mark.few_cases(4)
def test_any_read_of_chunks_is_made_at_another_place(reader: Reader) -> None:
    """Wherever it fits, and nowhere else; shards that were not looked at yet are not read."""
    whole, names = to_volume(STORED, "CDHW"), st.sampled_from((np.dtype(np.int16), *CASTS))

    @settings(max_examples=4 * EXAMPLES)
    @given(data=st.data(), dtype=names)
    def law(data: st.DataObject, dtype: np.dtype[Any]) -> None:
        extents = [data.draw(st.integers(1, extent)) for extent in SHAPE[1:]]
        start = [data.draw(st.integers(0, n - size)) for n, size in zip(SHAPE[1:], extents, strict=True)]
        first = [data.draw(st.integers(0, n - size)) for n, size in zip(SHAPE[1:], extents, strict=True)]
        boxes = [Box.whole(extents).shift(lo) for lo in (first, start)]
        out = np.zeros((SHAPE[0], *extents), dtype)
        made = [_made(reader, box, out, Boundary.ZERO)[0] for box in boxes]
        assert made[0] is not None
        assert made[1] is not None
        by = [there - here for here, there in zip(first, start, strict=True)]
        if made[0].moves is None:
            return
        joined = made[0].joined(made[1])
        assert joined.moves is not None
        outs = np.full((2, *out.shape), 77, dtype)
        moved = [joined.moves.moved(step) for step in ([0, 0, 0], by)]
        parts = [(one, address(to)) for one, to in zip(moved, outs, strict=True) if one is not None]
        assert not repeat([(joined.together(parts).at, 0)])
        for box, one, found in zip(boxes, moved, outs, strict=True):
            assert same_bits(found, whole[(slice(None), *box.slices)].astype(dtype))
            assert one is not None
            assert one.cost == reader.cost(box)
        assert made[0].moves.moved(by) is not None or made[0].moves.is_partial
        for axis in range(3):
            for out_of in (-first[axis] - 1, 4 * SHAPE[1 + axis]):
                assert made[0].moves.moved([out_of if axis == other else 0 for other in range(3)]) is None

    law()


@pytest.mark.few_cases(6)
def test_it_outlives_its_reader_and_holds_no_file(location: Location, tmp_path: Path) -> None:
    """The reader may be closed and gone; nothing is open between two reads."""
    opened, out = open_reader(location), np.zeros(SHAPE, np.int16)
    made, _ = _made(opened, Box.whole(SHAPE[1:]), out, Boundary.ZERO)
    assert made is not None
    opened.close()
    del opened
    gc.collect()
    for _ in range(2):
        out[...] = 7
        assert _again(made, out)
        assert same_bits(out, STORED)
        assert not [path for path in open_files() if path.startswith(os.fspath(tmp_path))]


def test_many_at_once(location: Location) -> None:
    """Reads of several blocks by one call, each into its own part of an array."""
    opened = open_reader(location)
    boxes = [Box((lo, 0, 2), (lo + 5, 11, 9)) for lo in range(5)]
    outs = np.zeros((len(boxes), SHAPE[0], 5, 11, 7), np.int16)
    reads = [_made(opened, box, out, Boundary.ZERO)[0] for box, out in zip(boxes, outs, strict=True)]
    outs[...] = 9
    assert not repeat([(made.at, address(out)) for made, out in zip(reads, outs, strict=True) if made])
    for box, out in zip(boxes, outs, strict=True):
        assert same_bits(out, STORED[(slice(None), *box.slices)])
    opened.close()


def _touched(path: Path) -> None:
    os.utime(path, ns=(1, path.stat().st_mtime_ns + 1))


def _replaced(path: Path) -> None:
    other = path.with_name(path.name + ".new")
    other.write_bytes(path.read_bytes())
    other.replace(path)


def _as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


HARM: dict[str, Callable[[Path], None]] = {
    "written to": _touched,
    "replaced": _replaced,
    "cut short": lambda path: os.truncate(path, path.stat().st_size - 1),
    "gone": Path.unlink,
    "a folder": _as_folder,
    "a pipe": _as_pipe,
}


@pytest.mark.few_cases(6)
@pytest.mark.parametrize("harm", HARM)
def test_of_another_file_nothing_is_made(location: Location, harm: str) -> None:
    """A file that is not what it was, or not there, leaves the read undone."""
    opened, out = open_reader(location), np.zeros(SHAPE, np.int16)
    made, _ = _made(opened, Box.whole(SHAPE[1:]), out, Boundary.ZERO)
    opened.close()
    assert made is not None
    path = Path(location.path)
    described = [path] if path.is_file() else [*path.rglob("zarr.json"), *path.rglob(".zarray")]
    HARM[harm](described[0])
    assert not _again(made, out)


@pytest.mark.few_cases(6)
@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith("zarr")])
def test_of_another_chunk(tmp_path: Path, kind: str, harm: str) -> None:
    """A chunk's own file is read as it is; a shard, whose index was learnt, only as it was."""
    location = KINDS[kind](tmp_path)
    settle(tmp_path)
    opened, out = open_reader(location), np.zeros(SHAPE, np.int16)
    made, _ = _made(opened, Box.whole(SHAPE[1:]), out, Boundary.ZERO)
    opened.close()
    assert made is not None
    names = (path for path in Path(location.path).rglob("*") if path.is_file() and not path.name.startswith((".", "z")))
    HARM[harm](next(names))
    out[...] = 3
    if "sharded" not in kind and harm in ("written to", "replaced"):
        assert _again(made, out)
        assert same_bits(out, STORED)
    else:
        assert not _again(made, out)


def test_metadata_that_come_are_seen(tmp_path: Path) -> None:
    """Metadata that were not there, of the whole hierarchy, may say something else once they are."""
    location = KINDS["zarr 2"](tmp_path)
    settle(tmp_path)
    opened, out = open_reader(location), np.zeros(SHAPE, np.int16)
    made, _ = _made(opened, Box.whole(SHAPE[1:]), out, Boundary.ZERO)
    opened.close()
    assert made is not None
    assert _again(made, out)
    (tmp_path / "x.zarr" / ".zmetadata").write_text("{}")
    assert not _again(made, out)


@pytest.mark.long
def test_what_may_change_unseen_is_not_learnt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file that was written to a moment ago two contents can have one stamp."""
    monkeypatch.setattr("voxload.readers.storage.stamp._NEAR_NS", 10**18)
    for write in KINDS.values():
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        opened, out = open_reader(write(folder)), np.zeros(SHAPE, np.int16)
        assert _made(opened, Box.whole(SHAPE[1:]), out, Boundary.ZERO)[0] is None
        opened.close()


def test_absent_chunks_are_left_to_the_reader(tmp_path: Path) -> None:
    """What was never written is not made again: whether it may be filled is the reader's to say."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", shape=SHAPE, dtype="<i2", chunks=CHUNKS, compression="gzip", fillvalue=5)[:, :4] = 1
    settle(tmp_path)
    opened = open_reader(Location(os.fspath(tmp_path / "x.h5"), "x", axes="CDHW"), missing="fill")
    out = np.zeros(SHAPE, np.int16)
    made, _ = _made(opened, Box.whole(SHAPE[1:]), out, Boundary.ZERO)
    assert made is not None
    assert not _again(made, out)
    there, _ = _made(opened, Box((0, 0, 0), (4, 11, 9)), out[:, :4], Boundary.ZERO)
    assert there is not None
    opened.close()


@pytest.mark.parametrize("boundary", Boundary)
@pytest.mark.parametrize("start", [(2, 0, 0), (-1, 3, 0), (0, 0, 3)])
def test_long_rows_are_read_to_where_they_belong(tmp_path: Path, start: tuple[int, ...], boundary: Boundary) -> None:
    """Of plain voxels, runs of some pages need no memory in between; shorter ones come with what lies between them."""
    stored, box = voxels((2, 8, 64, 40), "<f4", seed=1), Box.whole((6, 64, 40)).shift(start)
    location = _npy(tmp_path, stored)
    settle(tmp_path)
    opened, out = open_reader(location), np.zeros((2, *box.shape), np.float32)
    made, has_zeros = _made(opened, box, out, boundary)
    assert made is not None
    out[...] = 0 if has_zeros else 1
    assert _again(made, out)
    assert same_bits(out, expected_block(stored, box, boundary))
    opened.close()


def test_windows(tmp_path: Path) -> None:
    """A sample that shares a volume with others is made again from its own place."""
    stored = KINDS["hdf5 gzip"](tmp_path)
    settle(tmp_path)
    location = Location(stored.path, "x", axes="CDHW", window=Window((2, 3, 1), (6, 7, 8)))
    opened, out = open_reader(location), np.zeros((3, 6, 7, 8), np.int16)
    made, _ = _made(opened, Box.whole((6, 7, 8)), out, Boundary.ZERO)
    assert made is not None
    out[...] = 1
    assert _again(made, out)
    assert same_bits(out, np.ascontiguousarray(STORED[:, 2:8, 3:10, 1:9]))
    opened.close()
