"""Figures and utilisation of runs whose timings are made by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from voxload.benchmark.measure.figures import epoch_utilisation, figures, utilisation
from voxload.benchmark.measure.record import Epoch, Kernel, Record, Steps, count_difference


def _epoch(stall: tuple[float, ...], compute: float, peers: float = 0.0, *, after: float = 0.0) -> Epoch:
    """Return an epoch of steps that follow each other without a gap, and of some time after the last."""
    count = len(stall)
    durations = [wait + compute + peers for wait in stall]
    steps = Steps(
        begin=tuple(sum(durations[:place]) for place in range(count)),
        stall=stall,
        compute=(compute,) * count,
        peers=(peers,) * count,
        samples=(2,) * count,
        nbytes=(1000,) * count,
    )
    counts = {"bytes_read": 600 * count, "sources": {"memory": {"bytes": 10}, "storage": {"bytes": 600 * count}}}
    return Epoch(steps, sum(durations) + after, Kernel(700 * count, 500 * count, 0.5), counts, math.nan)


def _record(rank: int, *epochs: Epoch) -> Record:
    return Record(rank, "node", epochs, first_batch=0.25 * (rank + 1), peak_memory=100 * (rank + 1), shared_memory=0)


def test_utilisation_follows_the_rule() -> None:
    """Compute over time, without the first step of each epoch: MLPerf's own numbers, made by hand."""
    # Steps of 2 + 3 s first, then 1 + 3 s: 9 s of 12 s count.
    epoch = _epoch((2.0, 1.0, 1.0, 1.0), 3.0)
    assert epoch_utilisation(epoch, warmup=1) == pytest.approx(9 / 12)
    assert epoch_utilisation(epoch, warmup=0) == pytest.approx(12 / 17)
    assert epoch_utilisation(epoch, warmup=4) is None
    # Time after the last step, and waiting for others after any step, is time in which nothing is computed.
    assert epoch_utilisation(_epoch((0.0, 0.0), 3.0, 1.0, after=2.0), warmup=1) == pytest.approx(3 / 7)
    slow = _epoch((0.0, 3.0), 3.0)
    assert utilisation([_record(0, epoch), _record(1, slow)], warmup=1) == pytest.approx((0.75 + 0.5) / 2)
    assert utilisation([_record(0, _epoch((1.0,), 1.0))], warmup=1) is None


def test_what_a_loader_takes_from_the_loop_is_lost() -> None:
    """Work of 2 s alone that took 3 s beside the loader: 2 s of each step count, and a half more is what it took."""
    epoch = _epoch((1.0, 1.0, 1.0), 3.0)
    epoch = replace(epoch, steps=replace(epoch.steps, alone=(2.5, 2.0, 2.0)))
    assert epoch_utilisation(epoch, warmup=1) == pytest.approx(4 / 8)
    assert figures([_record(0, epoch)], group_size=1, warmup=1).slowdown == pytest.approx(1.5)
    assert figures([_record(0, _epoch((1.0,), 1.0))], group_size=1, warmup=0).slowdown is None


def test_figures_of_two_groups_of_two() -> None:
    """A sample that two ranks share counts once; bytes count on each rank; an epoch is as long as on its last rank."""
    short, long = _epoch((0.5, 0.5), 1.0), _epoch((1.0, 1.0), 1.0)
    records = [_record(rank, short if rank < 2 else long, short) for rank in range(4)]
    found = figures(records, group_size=2, warmup=1)
    assert found.seconds == pytest.approx(4.0 + 3.0)
    assert (found.steps, found.samples) == (4, 2 * 2 * 2 * 2)
    assert found.samples_per_second == pytest.approx(16 / 7)
    assert found.delivered_bytes == 4 * 4 * 1000
    assert (found.asked_bytes, found.read_bytes, found.device_bytes) == (16 * 600, 16 * 700, 16 * 500)
    assert found.amplification == pytest.approx(0.6)
    assert found.sources == {"memory": 8 * 10, "storage": 16 * 600}
    assert found.stall_seconds == pytest.approx((2 * 2.0 + 2 * 3.0) / 4)
    assert found.compute_seconds == pytest.approx(4.0)
    assert found.first_batch_seconds == 1.0
    assert found.peak_memory == 400
    assert found.cores == pytest.approx(4.0 / 7)
    assert found.stall["max"] == 1.0
    assert found.step["p50"] == pytest.approx(1.5)


def test_what_is_not_known_is_not_a_number() -> None:
    """Loaders that count nothing have no bytes asked for; without computing there is no utilisation."""
    silent = replace(_epoch((1.0, 1.0), 0.0), counts={})
    found = figures([_record(0, silent)], group_size=1, warmup=1)
    assert found.asked_bytes is None
    assert found.utilisation is None
    assert found.amplification == pytest.approx(0.7)  # of what read calls returned
    assert found.sources == {}


def test_what_was_counted_between_two_looks() -> None:
    """Numbers inside mappings are told apart, too; what is new counts from nothing."""
    before = {"bytes_read": 5, "sources": {"memory": {"bytes": 1}}}
    after = {"bytes_read": 9, "name": "x", "sources": {"memory": {"bytes": 4}, "disk": {"bytes": 2}}}
    assert count_difference(after, before) == {
        "bytes_read": 4,
        "sources": {"memory": {"bytes": 3}, "disk": {"bytes": 2}},
    }
