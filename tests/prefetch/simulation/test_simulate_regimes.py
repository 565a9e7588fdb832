"""The four regimes: the order of policies that was published, and where it differs here.

Compared with section 6.1 of N. Dryden et al., Clairvoyant Prefetching for Distributed Machine Learning I/O, SC'21
(arXiv 2101.08734), on its machine: 4 ranks, one a node. Room and data set are scaled down together, which changes no
ratio: there is no latency.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from voxload.errors import UsageError
from voxload.prefetch import machines, policies
from voxload.prefetch.line import Line
from voxload.prefetch.order.replays import shuffled_orders
from voxload.prefetch.simulate import Machine, Model, Outcome, Workload, run
from voxload.prefetch.simulation.workload import regimes

GROUPS, SAMPLES, EPOCHS = 4, 96, 5
PUBLISHED = 64e6
"""Bytes a rank computes on per second in the paper: 4 ranks use a sixth of what the storage gives."""
FAST = 3.2e9
"""What a GPU of today needs (MLPerf Storage v2, unet3d on an H100): 8 times what the storage gives."""
FITTING = range(3)
"""Regimes in which all ranks together hold the data set."""


@cache
def small_cluster() -> Machine:
    """Return the paper's machine with a 64th of its memory and disk, and staging for 8 blocks."""
    machine = machines.load("nopfs-cluster")
    assert machine.disk is not None
    memory = replace(machine.memory, nbytes=machine.memory.nbytes // 64)
    disk = replace(machine.disk, nbytes=machine.disk.nbytes // 64)
    return replace(machine, memory=memory, disk=disk, staging=replace(machine.staging, slots=8))


@cache
def outcomes(regime: int, rate: float) -> dict[str, Outcome]:
    """Return every policy's run in one regime."""
    machine = small_cluster()
    size = regimes(machine, GROUPS)[regime].nbytes // SAMPLES
    line = Line(np.full(SAMPLES, size, np.int64), (machine.room,) * GROUPS)
    workload = Workload(line, shuffled_orders(SAMPLES, GROUPS, batch=1, seed=0, epochs=EPOCHS), size / rate)
    return {name: run(machine, workload, policies.named(name), model=Model.STEPS) for name in policies.NAMES}


def ratios(regime: int, rate: float) -> dict[str, float]:
    """Return seconds over the lower bound."""
    return {name: found.seconds / found.bound.seconds for name, found in outcomes(regime, rate).items()}


@pytest.mark.parametrize("regime", range(4))
def test_with_the_published_compute_all_that_prefetch_are_near_the_bound(regime: int) -> None:
    """Scenario 1 of the paper: little difference between most policies, the naive one slower (1.7 times there)."""
    found = ratios(regime, PUBLISHED)
    assert all(found[name] < 1.01 for name in policies.NAMES if name != "none")
    assert found["none"] > 1.15


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("regime", range(4))
def test_nothing_beats_clairvoyant_and_the_naive_policy_is_last(regime: int) -> None:
    """All scenarios: the clairvoyant placement is at the front, what caches nothing behind, what waits for all last."""
    found = ratios(regime, FAST)
    assert found["clairvoyant"] <= min(found.values()) * 1.005
    assert found["none"] == max(found.values())
    assert found["none"] > 1.5 * found["staging"]
    assert all(found[name] < found["staging"] for name in policies.NAMES if name not in {"staging", "none"})


@pytest.mark.parametrize("regime", FITTING)
def test_what_fits_is_read_once_and_takes_no_longer_than_it_must(regime: int) -> None:
    """Scenarios 1 to 3: very close to the bound, unlike staging alone, which always reads the storage."""
    found = ratios(regime, FAST)
    runs = outcomes(regime, FAST)
    assert found["clairvoyant"] < 1.02
    assert runs["clairvoyant"].storage_bytes * EPOCHS == runs["staging"].storage_bytes
    assert found["staging"] > 2.5


def test_nopfs_is_as_good_while_one_rank_holds_all() -> None:
    """Scenarios 1 and 2: each rank has a copy of what it uses; from the third on copies cost room that others need."""
    assert all(ratios(regime, FAST)["nopfs"] < 1.02 for regime in (0, 1))
    for regime in (2, 3):
        runs, found = outcomes(regime, FAST), ratios(regime, FAST)
        assert runs["nopfs"].storage_bytes > 1.1 * runs["clairvoyant"].storage_bytes
        assert found["clairvoyant"] <= found["nopfs"] < 0.6 * found["staging"]


def test_node_local_caches_help_while_one_rank_holds_all() -> None:
    """What sees only its own node stops helping when the data set outgrows it, and hardly helps in the last regime."""
    found = [ratios(regime, FAST) for regime in range(4)]
    over = [each["lru"] / each["staging"] for each in found]
    assert over[0] == pytest.approx(over[1], rel=0.05)
    assert over[1] < over[2] < over[3]
    assert over[3] > 0.9
    assert all(each["nopfs"] < each["lru"] for each in found)


def test_shards_are_good_while_all_ranks_together_hold_all() -> None:
    """Scenario 3: shards avoid the storage. Here they are filled while training, so they read some blocks twice."""
    found = [ratios(regime, FAST) for regime in FITTING]
    assert all(each["shards"] < 0.75 * each["staging"] for each in found)


def test_first_touch_cannot_hold_the_largest() -> None:
    """Scenario 3 and 4: LBANN's store fails beyond its room. Here what does not fit is read again in every epoch."""
    for regime in FITTING:
        assert all(epoch.storage_bytes == 0 for epoch in outcomes(regime, FAST)["first-touch"].epochs[1:])
    assert all(epoch.storage_bytes > 0 for epoch in outcomes(3, FAST)["first-touch"].epochs)
    assert ratios(3, FAST)["first-touch"] > 1.2


def test_regimes_follow_from_the_machine() -> None:
    """Their sizes are what their names say; a machine without disk has three, and one group none."""
    machine = small_cluster()
    room, found = machine.room, regimes(machine, GROUPS)
    own = room.memory + room.disk
    bounds = [0, room.memory, own, GROUPS * own, 2 * GROUPS * own]
    assert all(low < regime.nbytes < high for regime, low, high in zip(found, bounds, bounds[1:], strict=False))
    assert len(regimes(machines.load("pizdaint"), GROUPS)) == 3
    with pytest.raises(UsageError, match="2 or more"):
        regimes(machine, 1)
