"""DatasetBlocks: a block is kept only where it is sure to be what its key says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zarr

import voxload
from tests.support.settled import settle
from voxload.cache.protocol import BlockKey
from voxload.errors import StorageError
from voxload.grid import ProcessGrid
from voxload.loader.caching.blocks import DatasetBlocks
from voxload.loader.caching.items import SampleItems
from voxload.loader.caching.tiers import _Greeting, _is_one_data
from voxload.loader.caching.units import SampleUnits

SHAPE = (8, 8, 8)


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """Store ones in two chunks."""
    path = tmp_path / "x.zarr"
    zarr.create_array(path, data=np.ones(SHAPE, "<i2"), chunks=(4, 8, 8), compressors=None)
    settle(path)
    return path


@pytest.fixture
def data(stored: Path) -> Iterator[voxload.VolumeDataset]:
    """Yield the data set of it."""
    made = voxload.VolumeDataset(str(stored), axes="DHW")
    yield made
    made.close()


def blocks_of(data: voxload.VolumeDataset) -> DatasetBlocks:
    """Return its blocks, as a job sees them that begins now."""
    return DatasetBlocks(SampleUnits(data, data.layout(0)), SampleItems(data), outlives=True)


def read(blocks: DatasetBlocks) -> tuple[int, bool]:
    """Return the sum of the voxels, and whether they are what the keys say."""
    out = np.zeros((1, *SHAPE), "<i2")
    found = blocks.read(0, [out])
    return int(out.sum()), found.is_sure


def keys_of(blocks: DatasetBlocks) -> tuple[BlockKey, ...]:
    """Return the keys of the only sample."""
    return blocks.keys(0)


def write(stored: Path, value: int) -> None:
    """Write all chunks anew, in place, with their times of writing kept."""
    for chunk in stored.glob("c/*/*/*"):
        status = chunk.stat()
        with chunk.open("r+b") as file:
            file.write(np.full((4, 8, 8), value, "<i2").tobytes())
        os.utime(chunk, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_what_is_written_during_a_job_is_not_kept_as_what_it_was(stored: Path, data: voxload.VolumeDataset) -> None:
    """The job's keys stay those of what it saw first; a job that begins later has others."""
    blocks = blocks_of(data)
    before = keys_of(blocks)
    assert read(blocks) == (512, True)
    write(stored, 2)
    assert read(blocks) == (1024, False)
    assert keys_of(blocks) == before
    settle(stored)
    later = blocks_of(data)
    assert keys_of(later) != before
    assert read(later) == (1024, True)


def test_what_is_written_while_it_is_read_is_not_kept(
    stored: Path, data: voxload.VolumeDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can tell which of both it is, or whether it is half of each."""
    blocks = blocks_of(data)
    whole = data.read_into

    def torn(*arguments: object, **words: object) -> object:
        cost = whole(*arguments, **words)  # type: ignore[arg-type] # handed on as they are
        write(stored, 3)
        return cost

    monkeypatch.setattr(data, "read_into", torn)
    assert read(blocks) == (512, False)


@pytest.mark.parametrize(("cause", "tries"), [(PermissionError(13, "refused"), 1), (OSError(5, "no answer"), 3)])
def test_rights_do_not_come_back_by_waiting(
    data: voxload.VolumeDataset, monkeypatch: pytest.MonkeyPatch, cause: OSError, tries: int
) -> None:
    """A read that the storage refused is tried again, twice, unless the user may not read there."""
    asked = []

    def refused(*arguments: object, **_: object) -> None:
        asked.append(arguments)
        raise StorageError("this read", found="refused, for the test") from cause

    monkeypatch.setattr(data, "read_into", refused)
    with pytest.raises(StorageError, match="refused, for the test"):
        read(blocks_of(data))
    assert len(asked) == tries


def test_what_was_written_just_before_is_kept_later(stored: Path, data: voxload.VolumeDataset) -> None:
    """Once its clock has moved on; until then it may be written again and look the same."""
    chunk = stored / "c/0/0/0"
    os.utime(chunk, ns=(2**62, 2**62))  # younger than any moment at which it can be read
    blocks = blocks_of(data)
    young = keys_of(blocks)
    assert blocks.lasts(0)
    assert read(blocks) == (512, False)
    os.utime(chunk, ns=(1, 1))
    settle(stored)
    assert read(blocks) == (512, True)
    assert keys_of(blocks) != young
    assert keys_of(blocks) == keys_of(blocks_of(data))


def test_absent_chunks_are_part_of_what_is_stored(stored: Path) -> None:
    """One that is written later makes another block of it."""
    victim = stored / "c/1/0/0"
    content = victim.read_bytes()
    victim.unlink()
    data = voxload.VolumeDataset(str(stored), axes="DHW", missing="fill")
    before = keys_of(blocks_of(data))
    assert read(blocks_of(data)) == (256, True)
    victim.write_bytes(content)
    assert keys_of(blocks_of(data)) != before
    data.close()


def test_ranks_that_see_other_data_share_no_blocks() -> None:
    """All ranks come to the same result; blocks at other places of a group are others anyway."""
    grid = ProcessGrid(spatial=(2, 1, 1), world_size=4, rank=1)
    same = [_Greeting("a", b"", first) for first in (b"left", b"right", b"left", b"right")]
    assert _is_one_data(same, grid)
    other = [*same[:3], _Greeting("b", b"", b"copy")]
    with pytest.warns(RuntimeWarning, match="share no blocks"):
        assert not _is_one_data(other, grid)
