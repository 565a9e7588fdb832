"""A loader with a cache gives the same stream when a tier is harmed, names what fails, and leaves nothing behind."""

from __future__ import annotations

import gc
import shutil
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import voxload
from tests.loader.caching.cached_streams import SAMPLES, FlakyDataset, memory_of, open_data, same, stream
from voxload.errors import StorageError
from voxload.readers.protocol import ReadCost, Volume


@pytest.mark.long
def test_storage_that_is_gone_for_good_is_an_error_that_names_it(folder: Path) -> None:
    """The reader's own error arrives."""
    data = open_data(folder, FlakyDataset)
    assert isinstance(data, FlakyDataset)
    data.share = 1.0
    loader = voxload.DataLoader(data, 2, cache=voxload.Cache(memory="1MiB"))
    with pytest.raises(StorageError, match="refused, for the test"):
        next(iter(loader))
    loader.close()
    data.close()


def test_a_timeout_is_torchs_and_loses_no_batch(folder: Path) -> None:
    """Who asks again after a time-out gets the batch that was late."""
    gate = threading.Event()

    class Slow(voxload.VolumeDataset):
        def read_into(self, index: int, volumes: Sequence[Volume], **which: int | None) -> ReadCost:
            gate.wait()
            return super().read_into(index, volumes, **which)

    data = open_data(folder, Slow)
    loader = voxload.DataLoader(data, 2, num_workers=1, timeout=0.1, cache=voxload.Cache(memory="1MiB"))
    batches = iter(loader)
    with pytest.raises(RuntimeError, match=r"timed out after 0\.1 seconds"):
        next(batches)
    gate.set()
    found: list[tuple[torch.Tensor, torch.Tensor]] = []
    while len(found) < len(loader):
        try:
            x, y = next(batches)
        except RuntimeError:  # an iterator keeps its time-out, and the machine may be busy
            continue
        found.append((x.clone(), y.clone()))
    with pytest.raises(StopIteration):
        next(batches)
    plain = open_data(folder)
    assert same(found, stream(voxload.DataLoader(plain, 2), [None]))
    loader.close()
    data.close()
    plain.close()


def _damage_memory(loader: voxload.DataLoader) -> None:
    memory = memory_of(loader).memory
    memory[len(memory) // 100 :] = 0xFF


def _blocks_on_disk(loader: voxload.DataLoader) -> list[Path]:
    assert loader.cache is not None
    assert loader.cache.folder is not None
    return list(loader.cache.folder.rglob("*.block"))


def _damage_disk(loader: voxload.DataLoader) -> None:
    for path in _blocks_on_disk(loader):
        with path.open("r+b") as file:
            file.seek(path.stat().st_size - 7)
            file.write(b"\x55")


def _remove_disk(loader: voxload.DataLoader) -> None:
    shutil.rmtree(_blocks_on_disk(loader)[0].parents[2])


@pytest.mark.parametrize("harm", [_damage_memory, _damage_disk, _remove_disk])
def test_harm_to_a_tier_changes_nothing_but_where_blocks_come_from(
    folder: Path, tmp_path: Path, harm: Callable[[voxload.DataLoader], None]
) -> None:
    """Flipped bits and a folder that is gone cost reads, and are told."""
    data = open_data(folder)
    words: dict[str, Any] = {"disk": tmp_path / "tier", "disk_size": "2MiB"}
    if harm is _damage_memory:
        words = {"memory": "2MiB"}
    loader = voxload.DataLoader(data, 2, cache=voxload.Cache(**words))
    expected = stream(voxload.DataLoader(data, 2), [None])
    assert same(stream(loader, [None]), expected)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        harm(loader)
        assert same(stream(loader, [None, None]), expected * 2)
    assert loader.stats().sources["storage"].fetches > SAMPLES
    assert caught
    loader.close()
    data.close()


@pytest.mark.long
def test_nothing_is_left_behind(folder: Path, tmp_path: Path) -> None:
    """Threads, shared memory and descriptors go with the loader, closed or not."""

    def left() -> tuple[set[str], int]:
        gc.collect()
        threads = {thread.name for thread in threading.enumerate() if thread.name.startswith("voxload-")}
        return threads - {"voxload-decode_0"}, len(list(Path("/proc/self/fd").iterdir()))

    data = open_data(folder)
    stream(voxload.DataLoader(data, 2), [None])
    before = left()
    for is_closed in (True, False):
        cache = voxload.Cache(memory="1MiB", disk=tmp_path / "tier", disk_size="1MiB")
        loader = voxload.DataLoader(data, 2, shuffle=True, cache=cache)
        stream(loader, [None, 2])
        segment = Path(memory_of(loader).path)
        assert segment.exists()
        if is_closed:
            loader.close()
        del loader
        threads, descriptors = left()
        assert threads <= before[0]
        assert descriptors <= before[1]
        assert not segment.exists()
    data.close()
