"""The times that the plug-in for DLIO notes; without DLIO."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from voxload.benchmark.dlio.journal import Journal, StepClock, journal_path, read_records
from voxload.benchmark.measure.figures import epoch_utilisation, utilisation
from voxload.errors import DataError, NotFoundError


class _Time:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds

    def passes(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.fixture
def time() -> _Time:
    """Return a clock that is set by hand."""
    return _Time()


@pytest.fixture
def clock(time: _Time) -> StepClock:
    """Return a step clock that goes by it."""
    return StepClock(time)


def _step(clock: StepClock, time: _Time, stall: float, compute: float, *, late: float = 0.0) -> None:
    """Let a batch come and be computed on, as long as DLIO is asked to or a little longer."""
    time.passes(stall)
    clock.came(samples=2, nbytes=10)
    clock.timed(lambda _batch, _seconds: time.passes(compute + late))(None, compute)


def test_a_step_is_loading_computing_and_the_rest(clock: StepClock, time: _Time) -> None:
    """The three parts of each step and the whole are exact; a late awakening is no computing."""
    time.passes(5)
    clock.begin()
    for stall, compute in ((3.0, 1.0), (0.5, 2.0), (0.25, 2.0)):
        _step(clock, time, stall, compute, late=0.125)
        time.passes(0.125)
        clock.done()
    time.passes(1.0)
    clock.exhausted()
    steps, wall = clock.epoch()
    assert steps.begin == (5.0, 9.25, 12.0)
    assert steps.stall == (3.0, 0.5, 0.25)
    assert steps.compute == (1.0, 2.0, 2.0)
    assert steps.peers == (0.25, 0.25, 0.25)
    assert (steps.samples, steps.nbytes) == ((2, 2, 2), (10, 10, 10))
    assert wall == 10.5


def test_what_a_loop_does_after_its_last_step_is_not_counted(clock: StepClock, time: _Time) -> None:
    """DLIO 2.0.0 writes its report before it lets the generator go."""
    clock.begin()
    _step(clock, time, 1.0, 2.0)
    time.passes(60)  # DLIO's report
    clock.left()
    steps, wall = clock.epoch()
    assert (steps.peers, wall) == ((0.0,), 3.0)


def test_a_last_step_ends_with_the_slowest_rank(clock: StepClock, time: _Time) -> None:
    """What a rank cannot see of its last wait comes from the others; a step that is whole is left as it is."""
    clock.begin()
    _step(clock, time, 1.0, 2.0)
    clock.left()
    assert clock.unsettled == 3.0
    clock.settle(4.5)
    steps, wall = clock.epoch()
    assert (steps.peers, wall) == ((1.5,), 4.5)
    clock.begin()
    _step(clock, time, 1.0, 2.0)
    clock.done()
    assert clock.unsettled == 0.0
    clock.settle(4.5)
    assert clock.epoch()[1] == 3.0


def test_a_batch_that_nothing_was_computed_for_is_no_step(clock: StepClock, time: _Time) -> None:
    """Later releases ask for one batch too many, whose loading counts as time."""
    clock.begin()
    _step(clock, time, 1.0, 2.0)
    clock.done()
    time.passes(0.5)
    clock.came(samples=2, nbytes=10)
    time.passes(60)
    clock.left()
    steps, wall = clock.epoch()
    assert (steps.stall, wall) == ((1.0,), 3.5)


def test_computing_that_draws_its_time_is_measured(clock: StepClock, time: _Time) -> None:
    """Without a number of seconds the measured ones count, and only within a step."""
    clock.begin()
    clock.came(samples=1, nbytes=1)
    compute = clock.timed(lambda _batch, _law: time.passes(0.75))
    compute(None, {"mean": 0.5})
    clock.done()
    assert clock.epoch()[0].compute == (0.75,)
    compute(None, {"mean": 0.5})  # an evaluation's, while no step is under way
    assert clock.epoch()[0].compute == (0.75,)


def test_a_journal_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Records come back from the file, and give the utilisation of their epochs."""
    journal = Journal(journal_path(tmp_path, 3), 3)
    for number in (1, 2):
        journal.clock.begin()
        for _ in range(2):
            journal.clock.came(samples=2, nbytes=10)
            journal.clock.timed(lambda: None)()
            journal.clock.done()
        journal.clock.exhausted()
        journal.end_epoch({"batches": 2 * number})
    [record] = read_records(tmp_path)
    assert (record.rank, len(record.epochs)) == (3, 2)
    assert [epoch.counts["batches"] for epoch in record.epochs] == [2, 2]
    assert record.epochs[0].steps.samples == (2, 2)
    own = [epoch_utilisation(epoch, warmup=1) for epoch in record.epochs]
    assert utilisation([record], warmup=1) == pytest.approx(np.mean([value for value in own if value is not None]))


def test_a_folder_without_journals_is_refused(tmp_path: Path) -> None:
    """Missing and strange files are errors that say which."""
    with pytest.raises(NotFoundError, match="data_loader_classname"):
        read_records(tmp_path)
    journal_path(tmp_path, 0).write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match="voxload_dlio_0"):
        read_records(tmp_path)
