"""Jobs that share a cache, simulated: what is promised of the storage's bytes and of their stalls."""

from __future__ import annotations

import numpy as np
import pytest

from voxload.prefetch.line import Ints
from voxload.prefetch.sharing.limits import SharingLimits
from voxload.prefetch.sharing.simulation import (
    SharedDisk,
    SharedJob,
    SharedOutcome,
    SharedStorage,
    simulate_sharing,
)
from voxload.prefetch.simulation.optimum import reads_of_optimum

UNITS, BATCH, SIZE = 240, 4, 1000
LIMITS = SharingLimits()


def order(seed: int, epochs: int = 4) -> Ints:
    """Return the order of a job that draws each unit once an epoch."""
    drawn = np.random.default_rng(seed)
    return np.concatenate([drawn.permutation(UNITS).reshape(-1, BATCH) for _ in range(epochs)])


def share(jobs: list[SharedJob], room: int, *, bandwidth: float, disk: int = 0) -> SharedOutcome:
    """Return what becomes of jobs with room for so many units in memory, and on a disk ten times as fast."""
    sizes = np.full(UNITS, SIZE, np.int64)
    storage = SharedStorage(bandwidth, latency=1e-4)
    near = SharedDisk(disk * SIZE, 10 * bandwidth)
    return simulate_sharing(jobs, sizes, room=room * SIZE, storage=storage, limits=LIMITS, disk=near)


def jobs(count: int = 4, *, apart: float = 0.3, foresight: int | None = None) -> list[SharedJob]:
    """Return jobs with orders of their own that begin some seconds apart."""
    return [SharedJob(order(job), 0.01, begin=apart * job, foresight=foresight) for job in range(count)]


@pytest.mark.parametrize("apart", [0.0, 0.3, 1.5])
def test_a_set_that_fits_is_read_once(apart: float) -> None:
    """Whatever jobs, and whenever they begin; where the storage has what all of them use, none waits for the others."""
    together = share(jobs(apart=apart), UNITS, bandwidth=2e6)
    assert together.storage_bytes == UNITS * SIZE
    alone = share(jobs(1), UNITS, bandwidth=2e6)
    first_steps = (4 * BATCH + LIMITS.reads) * SIZE / 2e6  # those of all jobs, and what is being read
    assert max(together.stalls) <= alone.stalls[0] + first_steps


@pytest.mark.few_cases(6)
@pytest.mark.parametrize("foresight", [None, 2 * UNITS // BATCH])
@pytest.mark.parametrize("share_of_set", [0.25, 0.5, 0.75])
def test_a_set_that_does_not_fit(share_of_set: float, foresight: int | None) -> None:
    """The storage gives at most 1.15 of what the optimum over all jobs' uses reads, and less than for four caches."""
    room = round(share_of_set * UNITS)
    found = share(jobs(foresight=foresight), room, bandwidth=4e5)
    optimum = int(reads_of_optimum(found.accesses, room).sum()) * SIZE
    assert optimum <= found.storage_bytes <= 1.15 * optimum
    apart = sum(share([one], room // 4, bandwidth=1e5).storage_bytes for one in jobs())
    assert found.storage_bytes < apart


@pytest.mark.parametrize("seed", range(3))
def test_room_for_few_units(seed: int) -> None:
    """What is read ahead leaves it to what is used again."""
    units, room = 48, 24
    drawn = np.random.default_rng(seed)
    orders = [np.concatenate([drawn.permutation(units) for _ in range(4)]).reshape(-1, 2) for _ in range(4)]
    found = simulate_sharing(
        [SharedJob(one, compute=0.02) for one in orders],
        np.full(units, SIZE),
        room=room * SIZE,
        storage=SharedStorage(1.2e5),
        limits=LIMITS,
    )
    assert found.storage_bytes <= 1.15 * SIZE * int(reads_of_optimum(found.accesses, room).sum())


@pytest.mark.long
@pytest.mark.parametrize("share_of_set", [0.5, 0.75, 1.0])
def test_a_disk(share_of_set: float) -> None:
    """It is of as much use as memory of its size, to the storage; a set that fits there is read once."""
    disk = round(share_of_set * UNITS)
    found = share(jobs(), UNITS // 8, bandwidth=4e5, disk=disk)
    optimum = int(reads_of_optimum(found.accesses, disk).sum()) * SIZE
    assert found.storage_bytes <= (1.0 if disk == UNITS else 1.15) * optimum
    assert found.disk_bytes > 0


def test_every_use_comes_once() -> None:
    """And in the order of its job."""
    found = share(jobs(2), UNITS // 3, bandwidth=4e5)
    expected = np.concatenate([order(0).ravel(), order(1).ravel()])
    assert sorted(found.accesses.tolist()) == sorted(expected.tolist())


@pytest.mark.long
def test_a_job_that_is_stopped_keeps_nobody_out() -> None:
    """What it would use next goes when others need the room: they read little more than without it."""
    stopped = SharedJob(order(9, epochs=1), 1e5)
    without = share(jobs(2), UNITS // 2, bandwidth=4e5)
    found = share([*jobs(2), stopped], UNITS // 2, bandwidth=4e5)
    # All of its own is read in the end, with nobody else there.
    assert found.storage_bytes - UNITS * SIZE <= 1.1 * without.storage_bytes
