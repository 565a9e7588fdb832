"""Blocks that come by way of a cache: the same stream, the storage asked once, and options that are checked."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, RandomSampler, Sampler, SequentialSampler, WeightedRandomSampler

import voxload
from tests.loader.caching.cached_streams import BLOCK, SAMPLES, FlakyDataset, memory_of, open_data, same, stream
from tests.support.settled import settle
from voxload.cache.peer.address import public_name
from voxload.errors import UsageError
from voxload.prefetch import policies


class Weave(Sampler[int]):
    """A sampler that nobody knows: every other sample, then the rest, begun elsewhere in each epoch."""

    def __init__(self) -> None:
        self.turn = 0

    def __len__(self) -> int:
        return SAMPLES

    def __iter__(self) -> Iterator[int]:
        self.turn += 1
        order = [*range(0, SAMPLES, 2), *range(1, SAMPLES, 2)]
        yield from order[self.turn % SAMPLES :] + order[: self.turn % SAMPLES]


class Uneven(Sampler[list[int]]):
    """Batches of one to three samples."""

    batch_size = 3

    def __iter__(self) -> Iterator[list[int]]:
        yield from ([4], [0, 1, 2], [3, 4], [5, -1, 0])

    def __len__(self) -> int:
        return 4


def loader_words(kind: str, batch: int, *, drop_last: bool) -> dict[str, Any]:
    """Return arguments that choose an order, made anew each time: generators have a state."""
    generator = torch.Generator().manual_seed(3)
    match kind:
        case "sequential":
            return {"batch_size": batch, "drop_last": drop_last}
        case "shuffled":
            return {"batch_size": batch, "drop_last": drop_last, "shuffle": True, "generator": generator}
        case "weighted":
            sampler = WeightedRandomSampler(list(range(1, SAMPLES + 1)), 9, generator=generator)
            return {"batch_size": batch, "drop_last": drop_last, "sampler": sampler}
        case "batches":
            shuffled = RandomSampler(range(SAMPLES), generator=generator)
            return {"batch_sampler": BatchSampler(shuffled, batch, drop_last)}
        case "unknown":
            return {"batch_size": batch, "drop_last": drop_last, "sampler": Weave()}
        case "uneven":
            return {"batch_sampler": Uneven()}
    return {"batch_size": None, "sampler": SequentialSampler(range(SAMPLES))}


KINDS = ("sequential", "shuffled", "weighted", "batches", "unknown", "uneven", "single")


@pytest.mark.long
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(KINDS),
    batch=st.integers(1, 4),
    drop_last=st.booleans(),
    lengths=st.lists(st.none() | st.integers(1, 4), min_size=1, max_size=4),
    memory=st.sampled_from([0, 6, 15, 40]),
    disk=st.sampled_from([0, 4, 20]),
    words=st.fixed_dictionaries(
        {
            "policy": st.sampled_from(policies.NAMES),
            "clairvoyant": st.booleans(),
            "epochs": st.none() | st.integers(1, 4),
            "codec": st.sampled_from(["none", "bitshuffle-lz4"]),
        }
    ),
    share=st.sampled_from([0.0, 0.05]),
)
def test_the_stream_is_torchs(
    folder: Path,
    tmp_path: Path,
    *,
    kind: str,
    batch: int,
    drop_last: bool,
    lengths: list[int | None],
    memory: int,
    disk: int,
    words: dict[str, Any],
    share: float,
) -> None:
    """Any sampler, tiers, policy, epochs left early and a storage that refuses reads: the stream is torch's."""
    plain, flaky = (
        open_data(folder),
        FlakyDataset(f"{folder}/*.h5", fields={"x": "full"}, axes="DHWC", targets="unitPar"),
    )
    expected = stream(torch.utils.data.DataLoader(plain, **loader_words(kind, batch, drop_last=drop_last)), lengths)
    place: dict[str, Any] = {"disk": tmp_path / "tier", "disk_size": disk * BLOCK} if disk else {}
    cache = voxload.Cache(memory=memory * BLOCK, **place, **words)
    flaky.share = share
    loader = voxload.DataLoader(flaky, cache=cache, **loader_words(kind, batch, drop_last=drop_last))
    try:
        assert same(stream(loader, lengths), expected)
    finally:
        loader.close()
        plain.close()
        flaky.close()


@pytest.mark.parametrize("place", ["memory", "disk"])
def test_the_storage_is_read_once(folder: Path, tmp_path: Path, place: str) -> None:
    """Tiers that hold the data set spare the storage all but the first reads."""
    data = open_data(folder)
    words: dict[str, Any] = {"disk": tmp_path / "tier", "disk_size": "2MiB"} if place == "disk" else {"memory": "2MiB"}
    loader = voxload.DataLoader(data, 2, shuffle=True, cache=voxload.Cache(epochs=4, **words))
    stream(loader, [None] * 4)
    sources = loader.stats().sources
    assert sources["storage"].fetches == SAMPLES
    assert sources[place].fetches == 3 * SAMPLES
    assert loader.stats().bytes_read < 1.01 * SAMPLES * BLOCK
    loader.close()
    data.close()


@pytest.mark.long
def test_a_codec_lets_tiers_hold_more(folder: Path, tmp_path: Path) -> None:
    """Counts of ten bits take ten sixteenths of the room, and plans reckon with it."""
    counts = {}
    for codec in ("none", "bitshuffle-lz4"):
        data = open_data(folder)
        room = SAMPLES * BLOCK * 7 // 8
        cache = voxload.Cache(disk=tmp_path / codec, disk_size=room, codec=codec, epochs=3)
        loader = voxload.DataLoader(data, 2, cache=cache)
        assert same(stream(loader, [None] * 3), stream(torch.utils.data.DataLoader(data, 2), [None] * 3))
        counts[codec] = loader.stats().sources["storage"].fetches
        loader.close()
        data.close()
    assert counts["bitshuffle-lz4"] == SAMPLES < counts["none"]


def test_a_disk_tier_is_found_by_the_next_job(folder: Path, tmp_path: Path) -> None:
    """What lies on disk is not read again."""
    cache = voxload.Cache(disk=tmp_path / "tier", disk_size="2MiB", epochs=1)
    counts = []
    for _ in range(2):
        data = open_data(folder)
        loader = voxload.DataLoader(data, 2, cache=cache)
        stream(loader, [None])
        counts.append(loader.stats().sources["storage"].fetches)
        loader.close()
        data.close()
    assert counts == [SAMPLES, 0]


def test_a_changed_file_is_not_taken_from_the_disk_tier(folder: Path, tmp_path: Path) -> None:
    """A file that was written anew has other keys."""
    cache = voxload.Cache(disk=tmp_path / "tier", disk_size="2MiB", epochs=1)
    own = tmp_path / "own"  # other tests count on files that nobody has touched
    shutil.copytree(folder, own)
    settle(own)
    one = sorted(own.glob("*.h5"))[4]
    for expected in (SAMPLES, 1):
        data = open_data(own)
        loader = voxload.DataLoader(data, 2, cache=cache)
        stream(loader, [None])
        assert loader.stats().sources["storage"].fetches == expected
        loader.close()
        data.close()
        status = one.stat()
        os.utime(one, ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))


def test_iterators_are_independent(folder: Path) -> None:
    """Two iterators of one loader do not disturb each other."""
    data = open_data(folder)
    loader = voxload.DataLoader(data, 2, cache=voxload.Cache(memory="1MiB"))
    expected = stream(voxload.DataLoader(data, 2), [None])
    pairs = [((x.clone(), y.clone()), (p.clone(), q.clone())) for (x, y), (p, q) in zip(loader, loader, strict=True)]
    assert same([first for first, _ in pairs], expected)
    assert same([second for _, second in pairs], expected)
    loader.close()
    data.close()


@pytest.mark.long
def test_an_endless_sampler_is_drawn_as_far_as_it_is_wanted(folder: Path) -> None:
    """A sampler may have no end."""

    class Endless(Sampler[int]):
        def __iter__(self) -> Iterator[int]:
            while True:
                yield from (3, 1, 2)

    data = open_data(folder)
    loader = voxload.DataLoader(data, 2, sampler=Endless(), cache=voxload.Cache(memory="1MiB"))
    expected = stream(voxload.DataLoader(data, 2, sampler=[3, 1, 2] * 2), [None])
    assert same(stream(loader, [3]), expected)
    loader.close()
    data.close()


def test_an_index_beyond_the_data_is_an_error_at_its_batch(folder: Path) -> None:
    """What the sampler draws wrongly is raised where torch raises it."""

    class Beyond(Sampler[int]):
        def __iter__(self) -> Iterator[int]:
            yield from (0, 1, SAMPLES, 2)

    data = open_data(folder)
    loader = voxload.DataLoader(data, 1, sampler=Beyond(), cache=voxload.Cache(memory="1MiB"))
    batches = iter(loader)
    found = [next(batches)[0].clone() for _ in range(2)]
    with pytest.raises(IndexError, match="sample 11"):
        next(batches)
    found.append(next(batches)[0].clone())
    expected = [batch[0].clone() for batch in voxload.DataLoader(data, 1, sampler=[0, 1, 2])]
    assert all(torch.equal(x, p) for x, p in zip(found, expected, strict=True))
    loader.close()
    data.close()


def test_batches_that_are_kept_do_not_change(folder: Path) -> None:
    """A consumer that keeps all batches gets new slots."""
    data = open_data(folder)
    loader = voxload.DataLoader(data, 1, cache=voxload.Cache(memory="1MiB"), staging=4 * BLOCK)
    kept = [batch[0] for _ in range(2) for batch in loader]
    expected = [batch[0].clone() for batch in voxload.DataLoader(data, 1)] * 2
    assert all(torch.equal(x, p) for x, p in zip(kept, expected, strict=True))
    del kept
    loader.close()
    data.close()


def test_names_in_memory_do_not_show_the_token(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everyone on the node sees the names in /dev/shm; the token lets into the blocks of all ranks."""
    token = bytes(range(0xA0, 0xC0))
    monkeypatch.setattr("voxload.loader.caching.tiers.job_token", lambda: token)
    data = open_data(folder)
    loader = voxload.DataLoader(data, 1, cache=voxload.Cache(memory="1MiB"))
    assert list(loader)
    name = memory_of(loader).path
    loader.close()
    data.close()
    assert f"-{public_name(token)}-0-" in name
    assert not any(token[at : at + 3].hex() in name for at in range(30))


def test_figures_by_source_are_there_for_people_and_programs(folder: Path) -> None:
    """Stats name what came from where."""
    data = open_data(folder)
    loader = voxload.DataLoader(data, 2, cache=voxload.Cache(memory="1MiB", epochs=2))
    stream(loader, [None, None])
    stats = loader.stats()
    memory = stats.sources["memory"]
    assert memory.nbytes == SAMPLES * BLOCK
    assert memory.bandwidth > 0
    assert memory.predicted > 0
    assert stats.as_dict()["sources"]["storage"]["fetches"] == SAMPLES
    loader.close()
    data.close()


@pytest.mark.parametrize(
    "words",
    [
        {"disk": "somewhere"},
        {"disk_size": "1MiB"},
        {"memory": "1M"},
        {"policy": "magic"},
        {"peers": "pigeons"},
        {"codec": "zip"},
        {"epochs": 0},
    ],
)
def test_a_cache_that_cannot_be_is_refused(words: dict[str, Any]) -> None:
    """Options are checked when they are given."""
    with pytest.raises(UsageError):
        voxload.Cache(**words)


def test_a_cache_needs_a_volume_dataset() -> None:
    """Other data sets have no blocks to keep."""
    with pytest.raises(UsageError, match="cache"):
        voxload.DataLoader([1, 2, 3], cache=voxload.Cache(memory="1MiB"))
