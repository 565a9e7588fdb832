"""Caches of samples that are others in every epoch, or of unequal shapes: the same stream, the storage asked once."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import voxload
from tests.loader.caching.cached_streams import FlakyDataset
from tests.loader.caching.piece_kinds import EVEN, KINDS, are_same, epochs_of, make, opened, words_of
from tests.support.ranks import printed_by_ranks
from voxload.augment import Augment, Flips
from voxload.errors import DataError, UsageError
from voxload.geometry import Box, pieces
from voxload.loader.caching.items import repeats_of
from voxload.loader.caching.pieces import PieceGrid, most_touched, piece_shape


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return all samples."""
    place = tmp_path_factory.mktemp("pieces")
    make(place)
    return place


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pieces be as small beside these samples as they are beside large ones."""
    monkeypatch.setattr("voxload.loader.caching.pieces._LEAST", 2**8)


@pytest.mark.long
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(KINDS),
    order=st.sampled_from(("sequential", "shuffled", "weighted", "drawn")),
    batch=st.integers(1, 4),
    halo=st.integers(0, 2),
    memory=st.sampled_from((2**14, 2**17, 2**24)),
    lengths=st.lists(st.sampled_from((None, 1, 2)), min_size=2, max_size=3).map(tuple),
)
def test_the_stream_is_that_without_a_cache(
    folder: Path, kind: str, order: str, batch: int, halo: int, memory: int, lengths: tuple[int | None, ...]
) -> None:
    """Whatever is augmented, of whatever shapes, in whatever order, with however little room."""
    batch = batch if kind in EVEN else 1
    streams = []
    for cache in (None, voxload.Cache(memory=memory)):
        data = opened(folder, kind, halo)
        with closing(voxload.DataLoader(data, cache=cache, **words_of(order, data, batch))) as loader:
            streams.append(epochs_of(loader, lengths))
        data.close()
    assert are_same(streams[1], streams[0])


@pytest.mark.few_cases(13)
@pytest.mark.parametrize("kind", KINDS)
def test_little_room_changes_nothing(folder: Path, kind: str) -> None:
    """Pieces are dropped, and kept again while their batch, which has but a part of each, takes them from there."""
    streams = []
    for cache in (None, voxload.Cache(memory=2**14)):
        data = opened(folder, kind)
        words = words_of("shuffled", data, 2 if kind in EVEN else 1)
        with closing(voxload.DataLoader(data, cache=cache, **words)) as loader:
            streams.append(epochs_of(loader, (None, None, None)))
        data.close()
    assert are_same(streams[1], streams[0])


@pytest.mark.few_cases(13)
@pytest.mark.parametrize("kind", KINDS)
def test_storage_is_read_once_when_it_fits(folder: Path, kind: str) -> None:
    """Every voxel that any epoch needs is asked of the storage once: the least that is possible."""
    data = opened(folder, kind)
    with closing(voxload.DataLoader(data, 1, shuffle=True, cache=voxload.Cache(memory="64MiB"))) as loader:
        for _ in range(6):
            list(loader)
        stats = loader.stats()
        assert stats.sources["memory"].fetches > 0
        units = loader._pipeline.prefetcher.kept.units  # type: ignore[union-attr] # there is one
        assert stats.sources["storage"].fetches <= units.count
        every = sum(units.unit(number).nbytes for number in range(units.count))
        assert stats.sources["storage"].nbytes <= every
    data.close()


@pytest.mark.long
def test_ranks_share_pieces(folder: Path) -> None:
    """Two groups of two blocks: each rank's stream is that without a cache, and what one group read is not read again.

    Where blocks move over nodes they come by TCP, which all ranks are told to use once.
    """
    script = Path(__file__).parent / "piece_ranks.py"
    for row in map(json.loads, printed_by_ranks(script, folder, ranks=4).splitlines()):
        for case, found in row["cases"].items():
            assert found["same"], f"{case} on rank {row['rank']}"
            assert found["read"] <= found["units"], f"{case} on rank {row['rank']}: {found}"


@pytest.mark.long
def test_a_disk_keeps_pieces_for_the_next_job(folder: Path, tmp_path: Path) -> None:
    """What one job kept, another finds, whatever it draws."""
    for job in range(2):
        data = opened(folder, "moved cube")
        cache = voxload.Cache(disk=tmp_path / "disk", disk_size="64MiB")
        with closing(voxload.DataLoader(data, 2, cache=cache)) as loader:
            for _ in range(2):
                list(loader)
            sources = loader.stats().sources
        assert (sources["storage"].fetches > 0) == (job == 0)
        data.close()


def test_unequal_scans_go_to_who_takes_them_one_by_one(folder: Path) -> None:
    """A collate_fn of one's own gets them as they are; torch's words where they cannot be one tensor."""
    found = []
    for cache in (None, voxload.Cache(memory="1MiB")):
        data = opened(folder, "unequal scans")
        with closing(voxload.DataLoader(data, 4, cache=cache, collate_fn=list)) as loader:
            found.append([[part.clone() for part in item] for batch in loader for item in batch])
        with (
            closing(voxload.DataLoader(data, 4, cache=cache)) as loader,
            pytest.raises(DataError, match="blocks of one shape"),
        ):
            list(loader)
        data.close()
    assert are_same(found[1], found[0])


def test_a_state_goes_on_with_repeats(folder: Path) -> None:
    """Half an epoch with replacement, saved and loaded: the other half is augmented as it would have been."""
    whole: list[list[torch.Tensor]] = []
    for cut in (None, 3):
        data = opened(folder, "crop")
        words = words_of("weighted", data, 1)
        loader = voxload.DataLoader(data, cache=voxload.Cache(memory="1MiB"), **words)
        with closing(loader):
            found = epochs_of(loader, (cut,))
            state = loader.state_dict()
        if cut is None:
            whole = found
        else:
            later = voxload.DataLoader(data, cache=voxload.Cache(memory="1MiB"), **words_of("weighted", data, 1))
            with closing(later):
                later.load_state_dict(state)
                found += epochs_of(later, (None,))
            assert are_same(found, whole)
        data.close()


def test_an_epoch_that_is_chosen_is_augmented_for_its_number(folder: Path) -> None:
    """`set_epoch` backwards, forwards and twice the same: what was foreseen for another number is not handed out."""
    streams = []
    for cache in (None, voxload.Cache(memory="1MiB")):
        data = opened(folder, "crop")
        with closing(voxload.DataLoader(data, 1, cache=cache)) as loader:
            found = []
            for epoch in (0, 0, 5, 1, 1):
                loader.set_epoch(epoch)
                found += epochs_of(loader, (None,))
            streams.append(found)
        data.close()
    assert are_same(streams[1], streams[0])


def test_a_class_with_a_way_of_its_own_to_read_is_refused(folder: Path) -> None:
    """Pieces would go past it."""
    data = FlakyDataset(f"{folder}/cube*.h5", fields={"x": "ct"}, augment=Augment(Flips()))
    with (
        closing(voxload.DataLoader(data, cache=voxload.Cache(memory="1MiB"))) as loader,
        pytest.raises(UsageError, match="read_into"),
    ):
        next(iter(loader))


@pytest.mark.long
@pytest.mark.parametrize("augment", [None, Augment(Flips(), seed=4)])
def test_a_chunk_that_is_missing_harms_only_what_touches_it(tmp_path: Path, augment: Augment | None) -> None:
    """Batch for batch, voxels or an error, as without a cache, though a piece has other chunks besides."""
    path = tmp_path / "holes.zarr"
    zarr.create_array(path, data=np.arange(32**3, dtype="<i4").reshape((32,) * 3), chunks=(8, 8, 8))
    for hole in ("c/1/1/0", "c/3/0/2"):
        (path / hole).unlink()
    found = []
    for cache in (None, voxload.Cache(memory="16MiB")):
        patches = voxload.Patches(6, per_sample=60)
        data = voxload.VolumeDataset(path, axes="DHW", patches=patches, augment=augment)
        with closing(voxload.DataLoader(data, cache=cache)) as loader:
            found.append([list(_outcomes(loader)) for _ in range(2)])
        data.close()
    assert found[1] == found[0]
    assert {type(outcome) for outcome in found[0][0]} == {bytes, str}


def _outcomes(loader: Any) -> Iterator[bytes | str]:
    """Yield the bytes of each batch, or what is raised in its place."""
    batches = iter(loader)
    while True:
        try:
            yield next(batches)[0].numpy().tobytes()
        except StopIteration:
            return
        except DataError as error:
            yield type(error).__name__


def test_a_sample_of_another_type_is_refused(tmp_path: Path) -> None:
    """Pieces of it would be read as what they are not."""
    for number, dtype in enumerate(("<i2", "<f4")):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            file.create_dataset("x", data=np.ones((8, 8, 8), dtype))
    data = voxload.VolumeDataset(f"{tmp_path}/*.h5", augment=Augment(Flips()))
    with (
        closing(voxload.DataLoader(data, cache=voxload.Cache(memory="1MiB"))) as loader,
        pytest.raises(DataError, match="float32"),
    ):
        list(loader)


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(
    extents=st.tuples(*[st.integers(1, 40)] * 3),
    piece=st.tuples(*[st.integers(1, 12)] * 3),
    start=st.tuples(*[st.integers(-50, 50)] * 3),
    size=st.tuples(*[st.integers(1, 30)] * 3),
)
def test_no_box_touches_more_pieces_than_are_foreseen(
    extents: tuple[int, int, int],
    piece: tuple[int, int, int],
    start: tuple[int, int, int],
    size: tuple[int, int, int],
) -> None:
    """Inside, across the ends, and around a periodic volume; pieces cover it, each voxel once."""
    grid = PieceGrid(extents, tuple(map(min, piece, extents)))  # type: ignore[arg-type] # three of them
    box = Box(start, tuple(map(sum, zip(start, size, strict=True))))
    for boundary in ("zero", "periodic"):
        touched = {number for part in pieces(box, extents, boundary) for number in grid.touched(part.source)}
        assert len(touched) <= most_touched(size, grid)
    seen = np.zeros(extents, int)
    for number in range(grid.count):
        seen[grid.box(number).slices] += 1
        assert grid.box(number).size == grid.voxels()[number]
    assert (seen == 1).all()


def test_pieces_are_whole_chunks() -> None:
    """Small chunks are joined, large ones stay whole; a volume is never exceeded."""
    for chunk in ((16, 16, 16), (1, 64, 64), (200, 30, 7), None):
        found = piece_shape((200, 100, 50), chunk, wanted=64**3, voxel=4)
        assert all(width <= extent for width, extent in zip(found, (200, 100, 50), strict=True))
        for width, own, extent in zip(found, chunk or (1, 1, 1), (200, 100, 50), strict=True):
            assert width % own == 0 or width == extent


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(-1, 4), min_size=3, max_size=3), max_size=6), st.lists(st.integers(0, 4)))
def test_repeats_are_counted(rows: list[list[int]], before: list[int]) -> None:
    """As one would count them by hand."""
    seen = list(before)
    expected = []
    for sample in itertools.chain.from_iterable(rows):
        expected.append(seen.count(sample) if sample >= 0 else 0)
        seen += [sample] if sample >= 0 else []
    assert repeats_of(np.array(rows, np.int64).reshape(-1, 3), before).ravel().tolist() == expected
