"""The native core: cuts, kernels and pipelines against plain numpy, and a team that neither loses nor repeats."""

from __future__ import annotations

import math
import os
import threading
import weakref
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import google_crc32c
import imagecodecs
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import processes
from voxload.errors import DataError, UsageError
from voxload.geometry import Box
from voxload.readers import Location, open_reader
from voxload.readers.chunks import chunked
from voxload.readers.chunks.chunked import ChunkedVolume, Fetched, Mapped
from voxload.readers.decode.codecs import DEFLATE, ZSTD, Crc32c, Fletcher32, Pipeline
from voxload.readers.flat import contiguous
from voxload.readers.flat.contiguous import ContiguousVolume
from voxload.readers.pasting import kernels
from voxload.readers.pasting.pasteplan import ChunkShape, Wanted, fits, plan_parts
from voxload.readers.storage.file import FileBytes
from voxload.readers.team import Team, default_threads, set_threads, team

DTYPES = ("<i1", "<u2", ">i2", "<f4", ">f4", "<f8", ">u8")


@given(data=st.data())
def test_a_plan_names_each_chunk_once_and_holds_each_voxel_once(data: st.DataObject) -> None:
    """The parts of any boxes cover them exactly; all parts of a chunk stand together, chunks in order."""
    extents = tuple(data.draw(st.lists(st.integers(1, 6), min_size=3, max_size=3)))
    starts = data.draw(st.lists(st.tuples(*[st.integers(0, 9)] * 3), min_size=1, max_size=4))
    lengths = data.draw(st.tuples(*[st.integers(1, 9)] * 3))
    boxes = [Box(start, tuple(lo + n for lo, n in zip(start, lengths, strict=True))) for start in starts]
    counts = np.zeros((len(boxes), *lengths), np.uint8)
    wanted = [Wanted(box, view) for box, view in zip(boxes, counts, strict=True)]
    parts = plan_parts(ChunkShape.of(extents, np.dtype("u1")), wanted)
    assert len(set(parts.places)) == len(parts.places)
    assert parts.places == sorted(parts.places)
    ones = np.ones(math.prod(extents), np.uint8)
    for number in range(len(parts.places)):
        first, stop = parts.spans[number]
        assert 0 <= first < stop <= ones.nbytes
    for row in range(len(parts.table)):
        before = counts.copy()
        kernels.paste(ones, parts.table, (row, row + 1), 1, is_shuffled=False, is_swapped=False)
        assert (counts - before).any()
    assert counts.all()
    assert sum(math.prod(row[: kernels.AXES].tolist()) for row in parts.table) == counts.size


def _shuffled(chunk: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return the bytes of a chunk in planes, as HDF5's shuffle filter stores them."""
    width = chunk.dtype.itemsize
    return np.ascontiguousarray(np.frombuffer(chunk.tobytes(), np.uint8).reshape(-1, width).T).reshape(-1)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # each example sets its own threshold
@given(data=st.data())
def test_a_read_equals_numpys_slice(monkeypatch: pytest.MonkeyPatch, data: st.DataObject) -> None:
    """Any box of any chunk grid, type, byte order, shuffle and axis order is what numpy slices, into any array."""
    ndim = data.draw(st.sampled_from([3, 4]))
    extents = tuple(data.draw(st.lists(st.integers(1, 5), min_size=ndim, max_size=ndim)))
    shape = tuple(data.draw(st.lists(st.integers(1, 11), min_size=ndim, max_size=ndim)))
    dtype = np.dtype(data.draw(st.sampled_from(DTYPES)))
    is_shuffled = data.draw(st.booleans()) and dtype.itemsize > 1
    turned = tuple(data.draw(st.permutations(range(ndim))))
    span = [sorted(data.draw(st.lists(st.integers(0, n), min_size=2, max_size=2, unique=True))) for n in shape]
    box = Box(tuple(lo for lo, _ in span), tuple(hi for _, hi in span))
    whole = np.random.default_rng(0).integers(0, 2**7, shape).astype(dtype)
    offset = data.draw(st.integers(0, 3))  # chunks in a map need not lie at a multiple of their width

    def fetch(place: tuple[int, ...]) -> Fetched:
        chunk = np.zeros(extents, dtype)
        begin = tuple(i * n for i, n in zip(place, extents, strict=True))
        part = whole[tuple(slice(lo, lo + n) for lo, n in zip(begin, extents, strict=True))]
        chunk[tuple(slice(0, n) for n in part.shape)] = part
        stored = np.ascontiguousarray(chunk.transpose(turned))
        loose = np.zeros(stored.nbytes + offset, np.uint8)
        loose[offset:] = _shuffled(stored) if is_shuffled else np.frombuffer(stored.tobytes(), np.uint8)
        return Fetched(loose[offset:])

    def locate(places: Sequence[tuple[int, ...]]) -> Mapped:
        chunks = [fetch(place).data for place in places]
        return Mapped(np.array([chunk.ctypes.data for chunk in chunks], np.uint64), chunks)

    layout = ChunkShape.of(extents, dtype, turned=turned)
    pipeline = Pipeline((), math.prod(extents) * dtype.itemsize, is_shuffled)
    is_mapped = not is_shuffled and data.draw(st.booleans())
    volume = ChunkedVolume("x", layout, pipeline, fetch, locate=locate if is_mapped else None)
    order = data.draw(st.permutations(range(ndim)))
    backing = np.full([2 * n for n in np.array(box.shape)[list(order)]], 99, dtype.newbyteorder("="))
    view = backing[tuple(slice(0, None, 2) for _ in range(ndim))].transpose(np.argsort(order))
    second = np.empty(box.shape, dtype.newbyteorder("="))
    set_threads(data.draw(st.sampled_from([1, 3])))
    monkeypatch.setattr(chunked, "_SHARED_BYTES", data.draw(st.sampled_from([8, 64, 2**21])))
    monkeypatch.setattr(chunked, "_SHARE_BYTES", data.draw(st.sampled_from([8, 64, 2**20])))
    volume.read_all([Wanted(box, view), Wanted(box, second)], fill=_never)
    assert np.array_equal(view, whole[box.slices])
    assert np.array_equal(second, view)
    assert np.count_nonzero(backing == 99) >= backing.size - view.size


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_contiguous_data_are_read_slab_by_slab(monkeypatch: pytest.MonkeyPatch, data: st.DataObject) -> None:
    """Any box of an array in any axis order and byte order is what numpy slices, however thin the slabs."""
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=3, max_size=3)))
    dtype, turned = np.dtype(data.draw(st.sampled_from(DTYPES))), tuple(data.draw(st.permutations(range(3))))
    span = [sorted(data.draw(st.lists(st.integers(0, n), min_size=2, max_size=2, unique=True))) for n in shape]
    box = Box(tuple(lo for lo, _ in span), tuple(hi for _, hi in span))
    whole = np.random.default_rng(0).integers(0, 2**7, shape).astype(dtype)
    stored = np.frombuffer(whole.transpose(turned).tobytes(), np.uint8)
    monkeypatch.setattr(contiguous, "_SLAB_BYTES", data.draw(st.sampled_from([1, 8, 64, 2**20])))
    out = np.empty(box.shape, dtype.newbyteorder("="))
    ContiguousVolume("x", ChunkShape.of(shape, dtype, turned=turned), stored).read(box, out)
    assert np.array_equal(out, whole[box.slices])


def _never(view: npt.NDArray[Any]) -> None:
    raise AssertionError(f"nothing is missing, yet {view.shape} was to be filled")


def test_missing_chunks_are_filled_by_the_caller() -> None:
    """A chunk that was never written leaves its part of the box to the fill function, and only that."""
    layout = ChunkShape.of((2, 2, 2), np.dtype("<i2"))
    ones = np.frombuffer(np.ones((2, 2, 2), "<i2").tobytes(), np.uint8)
    volume = ChunkedVolume("x", layout, Pipeline((), 16), lambda place: Fetched(ones) if sum(place) % 2 == 0 else None)
    out = np.zeros((4, 4, 4), np.int16)
    volume.read(Box.whole((4, 4, 4)), out, fill=lambda view: view.fill(7))
    places = np.indices((4, 4, 4)).sum(0) * 0 + sum(np.indices((4, 4, 4)) // 2) % 2
    assert np.array_equal(out, np.where(places == 0, 1, 7))


def test_views_that_kernels_cannot_follow_are_refused() -> None:
    """Negative strides, read-only arrays and other shapes are no targets."""
    volume = ChunkedVolume("x", ChunkShape.of((2, 2, 2), np.dtype("<i2")), Pipeline((), 16), lambda _: None)
    plain = np.zeros((2, 2, 2), np.int16)
    locked = plain.copy()
    locked.flags.writeable = False
    for view in (plain[::-1], locked, plain[:1]):
        with pytest.raises(UsageError, match="view: found"):
            volume.read(Box.whole((2, 2, 2)), view, fill=_never)
    assert not fits(plain[:, :0])


PAYLOAD = np.random.default_rng(1).integers(0, 9, 4096).astype(np.uint8)


def _fletcher(data: bytes) -> bytes:
    checksum: Any = imagecodecs.h5checksum_fletcher32
    return data + int(checksum(data)).to_bytes(4, "little")


def _crc(data: bytes) -> bytes:
    return data + int(google_crc32c.value(data)).to_bytes(4, "little")


STORED = {
    "deflate": (Pipeline((DEFLATE,), 4096), zlib.compress(PAYLOAD.tobytes())),
    "deflate and fletcher32": (Pipeline((DEFLATE, Fletcher32()), 4096), _fletcher(zlib.compress(PAYLOAD.tobytes()))),
    "fletcher32 inside deflate": (Pipeline((Fletcher32(), DEFLATE), 4096), zlib.compress(_fletcher(PAYLOAD.tobytes()))),
    "zstd and crc32c": (Pipeline((ZSTD, Crc32c()), 4096), _crc(bytes(imagecodecs.zstd_encode(PAYLOAD.tobytes())))),
    "crc32c alone": (Pipeline((Crc32c(),), 4096), _crc(PAYLOAD.tobytes())),
}


@pytest.mark.parametrize("case", STORED)
def test_pipelines_undo_what_was_written(case: str) -> None:
    """Steps are undone from the last to the first, checksums are verified, and every damage is an error."""
    pipeline, stored = STORED[case]
    data = np.frombuffer(stored, np.uint8)
    assert np.array_equal(pipeline.decode(data)[0], PAYLOAD)
    for cut in (0, 1, 3, len(data) // 2, len(data) - 1):
        with pytest.raises(DataError, match=r"^found"):
            pipeline.decode(data[:cut])
    rng = np.random.default_rng(0)
    for _ in range(200):
        damaged = data.copy()
        damaged[rng.integers(len(data))] ^= 1 << rng.integers(8)
        with pytest.raises(DataError, match=r"^found"):
            pipeline.decode(damaged)


def test_filter_masks_leave_steps_out() -> None:
    """A chunk stored without one of its filters is read without it; the shuffle has place 0."""
    pipeline = Pipeline((DEFLATE, Fletcher32()), 4096, is_shuffled=True, shift=1)
    raw, packed = PAYLOAD.tobytes(), zlib.compress(PAYLOAD.tobytes())
    cases = {0b000: (_fletcher(packed), True), 0b001: (_fletcher(packed), False), 0b010: (_fletcher(raw), True),
             0b100: (packed, True), 0b110: (raw, True), 0b111: (raw, False)}  # fmt: skip
    for mask, (stored, is_shuffled) in cases.items():
        data, found = pipeline.decode(np.frombuffer(stored, np.uint8), mask=mask)
        assert np.array_equal(data, PAYLOAD)
        assert found is is_shuffled


def test_a_chunk_that_decodes_to_more_or_less_is_refused() -> None:
    """The decoded size is known beforehand: a bomb is stopped at it, and too little is not enough."""
    for size in (4095, 4097, 10**6):
        with pytest.raises(DataError, match=r"^found"):
            Pipeline((DEFLATE,), 4096).decode(np.frombuffer(zlib.compress(bytes(size)), np.uint8))


def test_a_team_does_each_task_once() -> None:
    """However many threads read at once, each of their tasks is done once, by them or by a helper."""
    shared = Team(3)
    done: list[list[int]] = [[] for _ in range(4)]
    readers = [threading.Thread(target=shared.run, args=(mine.append, range(200))) for mine in done]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(processes.LIMIT)
    shared.close()
    assert [sorted(mine) for mine in done] == [list(range(200))] * 4


def test_reads_that_wait_do_not_stop_others() -> None:
    """While as many reads as there are cores wait for something, another one is done, and so is one inside a task."""
    crew, gate = Team(2), threading.Event()
    cores = len(os.sched_getaffinity(0))
    held = threading.Barrier(cores + 1)

    def wait_for_it(_: int) -> None:
        held.wait(processes.LIMIT)
        assert gate.wait(processes.LIMIT)

    waiting = [threading.Thread(target=crew.run, args=(wait_for_it, [0])) for _ in range(cores)]
    for one in waiting:
        one.start()
    held.wait(processes.LIMIT)
    done: list[int] = []
    crew.run(lambda task: crew.run(done.append, [task]), range(3))
    assert sorted(done) == [0, 1, 2]
    gate.set()
    for one in waiting:
        one.join(processes.LIMIT)
    crew.close()


def test_a_read_that_is_over_holds_no_array() -> None:
    """A helper that never began, since its thread was busy, does not keep what would have been written to."""

    class Written:
        """Stands for the work on an array."""

        def __call__(self, _: int) -> None:
            return

    crew, gate = Team(2), threading.Event()
    if crew._pool is not None:  # with one core there are no helpers
        crew._pool.submit(gate.wait, processes.LIMIT)
    work = Written()
    held = weakref.ref(work)
    try:
        crew.run(work, range(8))
        del work
        assert held() is None
    finally:
        gate.set()
        crew.close()


@pytest.mark.parametrize("threads", [1, 3])
def test_a_failing_task_ends_the_run(threads: int) -> None:
    """The error of a task comes out of the run, after every task that had begun has ended."""
    crew = Team(threads)
    running = []

    def work(task: int) -> None:
        running.append(task)
        try:
            if task == 5:
                raise DataError("task 5")
        finally:
            running.remove(task)

    with pytest.raises(DataError, match="task 5"):
        crew.run(work, range(1000))
    assert running == []
    crew.close()
    with pytest.raises(UsageError, match="1 or more"):
        Team(0)


def test_ranks_of_a_node_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default team is the process's share of the cores, and never less than the caller alone."""
    alone = default_threads()
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(2 * alone))
    assert default_threads() == 1
    set_threads(2)
    assert team().threads == 2


def test_file_ranges_are_checked(tmp_path: Path) -> None:
    """Ranges outside the file, and files that changed, are errors that name the file; inside ones are exact."""
    path = tmp_path / "x"
    content = np.random.default_rng(0).integers(0, 256, 10_000).astype(np.uint8)
    content.tofile(path)
    for may_map in (False, True):
        file = FileBytes(str(path), may_map=may_map)
        assert np.array_equal(file.read(17, 4000), content[17:4017])
        for offset, length in ((9_999, 2), (10_001, 0), (-1, 4), (2**63, 2**63), (0, 2**64)):
            with pytest.raises(DataError, match=r"x: found .* bytes at"):
                file.read(offset, length)
        file.check_unchanged()
        with path.open("ab") as more:
            more.write(b"!")
        with pytest.raises(DataError, match="changed since it was opened"):
            file.check_unchanged()
        file.close()
        content.tofile(path)


def test_a_type_that_nothing_is_read_as_is_refused_before_the_first_read(tmp_path: Path) -> None:
    """The error names what voxels can be read as."""
    values = np.arange(60, dtype="<i2").reshape(3, 4, 5)
    np.save(tmp_path / "x.npy", values)
    reader = open_reader(Location(str(tmp_path / "x.npy")))
    out = np.zeros((1, 3, 4, 5), np.float32)
    reader.read_into(Box.whole((3, 4, 5)), out)
    assert np.array_equal(out[0], values.astype(np.float32))
    with pytest.raises(UsageError, match=r"x\.npy: found float64 .*, expected int16 .*, or float32"):
        reader.read_into(Box.whole((3, 4, 5)), np.zeros((1, 3, 4, 5)))
    reader.close()
