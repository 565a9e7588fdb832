"""Samples in files as DLIO writes them, loaded by the plug-in; without DLIO."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tests.benchmark.dlio.dlio_args import plan_of
from voxload.benchmark.dlio.settings import Options
from voxload.benchmark.dlio.supply import Supply, size_of
from voxload.errors import InternalError, UsageError


def _write(folder: Path, stored: str, per_file: int, dims: tuple[int, ...]) -> dict[tuple[str, int], Any]:
    """Write three files as DLIO does, and return each sample as (C, D, H, W) by its file and place."""
    rng = np.random.default_rng(7)
    found = {}
    for number in range(3):
        records = rng.integers(0, 255, (per_file, *dims), np.uint8)
        path = folder / f"img_{number}_of_3.{stored}"
        if stored == "npy":
            np.save(path, np.moveaxis(records, 0, -1))
        else:
            with h5py.File(path, "w") as file:
                file.create_dataset("records", data=records, compression="gzip")
                file.create_dataset("labels", data=[0] * per_file)
        for place in range(per_file):
            found[str(path), place] = records[place].reshape((1, *([1] * (3 - len(dims))), *dims))
    return found


@pytest.mark.parametrize("stored", ["hdf5", "npy"])
@pytest.mark.parametrize(("per_file", "dims"), [(1, (9, 8)), (4, (9, 8)), (1, (5, 6, 7))])
def test_batches_are_the_samples_of_the_order(
    tmp_path: Path, stored: str, per_file: int, dims: tuple[int, ...]
) -> None:
    """Each batch has the bytes of its sample, in any order, epoch after epoch."""
    wanted = _write(tmp_path, stored, per_file, dims)
    record_dims = list(dims) if len(dims) == 3 else []
    plan = plan_of(format=stored, num_samples_per_file=per_file, record_dims=record_dims, batch_size=1)
    supply = Supply([path for path, _ in wanted], plan)
    try:
        for order in (list(wanted), list(reversed(wanted))):
            batches = list(supply.epoch(order))
            assert [len(batch) for batch in batches] == [1] * len(order)
            for place, ((volume,),) in zip(order, batches, strict=True):
                np.testing.assert_array_equal(volume.numpy(), wanted[place])
            assert size_of(batches[0]) == wanted[order[0]].nbytes
        assert supply.counts()["samples"] == 2 * len(wanted)
    finally:
        supply.close()


def test_samples_of_unequal_size_share_a_batch(tmp_path: Path) -> None:
    """DLIO's standard deviation of sizes needs no padding."""
    for number, size in enumerate((4, 6)):
        with h5py.File(tmp_path / f"{number}.hdf5", "w") as file:
            file["records_0"] = np.full((1, size, size), number, np.uint8)
    paths = sorted(map(str, tmp_path.glob("*.hdf5")))
    supply = Supply(paths, plan_of())
    try:
        [batch] = supply.epoch([(path, 0) for path in paths])
        assert [tuple(volume.shape) for (volume,) in batch] == [(1, 1, 4, 4), (1, 1, 6, 6)]
    finally:
        supply.close()


@pytest.mark.filterwarnings("ignore:torch.distributed is not initialised")
@pytest.mark.parametrize("per_file", [1, 2])
def test_ranks_that_share_samples_have_their_blocks(tmp_path: Path, per_file: int) -> None:
    """The blocks of both ranks make up the samples, twice as many a step."""
    wanted = _write(tmp_path, "hdf5", per_file, (9, 8))
    parts = []
    for rank in range(2):
        plan = plan_of(Options((1, 1, 2)), num_samples_per_file=per_file, batch_size=1, comm_size=2, my_rank=rank)
        assert plan.group_batch == 2
        supply = Supply([path for path, _ in wanted], plan)
        parts.append([volume for batch in supply.epoch(list(wanted)) for (volume,) in batch])
        supply.close()
    whole = [np.concatenate(both, axis=-1) for both in zip(*parts, strict=True)]
    assert len(whole) == len(wanted) // 2 * 2  # the last batch of an odd number is left out
    for found, sample in zip(whole, wanted.values(), strict=False):
        np.testing.assert_array_equal(found, sample)


def test_halos_do_not_reach_into_the_next_sample(tmp_path: Path) -> None:
    """A halo with several samples in a file is refused."""
    wanted = _write(tmp_path, "hdf5", 2, (9, 8))
    with pytest.raises(UsageError, match="num_samples_per_file=1"):
        Supply([path for path, _ in wanted], plan_of(Options(halo=1), num_samples_per_file=2))


def test_a_file_with_other_samples_than_said_is_refused(tmp_path: Path) -> None:
    """A workload that does not fit its files is an error."""
    wanted = _write(tmp_path, "hdf5", 2, (9, 8))
    supply = Supply([path for path, _ in wanted], plan_of(num_samples_per_file=4))
    try:
        with pytest.raises(UsageError, match="num_samples_per_file"):
            next(supply.epoch([(path, 0) for path, _ in wanted]))
    finally:
        supply.close()


def test_files_that_are_not_known_are_seen(tmp_path: Path) -> None:
    """Orders of other files are noticed before anything is read."""
    wanted = _write(tmp_path, "hdf5", 1, (9, 8))
    supply = Supply([path for path, _ in wanted], plan_of())
    try:
        assert supply.has(list(wanted))
        assert not supply.has([("elsewhere.hdf5", 0)])
        with pytest.raises(InternalError):
            supply.epoch([("elsewhere.hdf5", 0)])
    finally:
        supply.close()
