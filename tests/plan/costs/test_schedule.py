"""Stages that alternate, beside what can be worked out by hand and by another way."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.pipelining.schedules import Schedule1F1B

from voxload.plan.costs.schedule import Pass, StagePasses, Task, in_flight, order, run

SECONDS = st.floats(0.0, 4.0).map(lambda value: round(value, 3))


def _alone(_working: int) -> float:
    return 1.0


def _stage(forward: float, backward: float, sending: float = 0.0) -> StagePasses:
    return StagePasses(Pass(forward), Pass(backward), sending)


@pytest.mark.parametrize(("stages", "microbatches"), [(1, 3), (2, 2), (4, 9)])
def test_equal_stages_fill_and_drain(stages: int, microbatches: int) -> None:
    """A step is as long as its microbatches and the other stages' one together (Huang et al., GPipe, 2019)."""
    ends = run([_stage(1.0, 2.0)] * stages, microbatches, _alone)
    assert max(ends) == pytest.approx((microbatches + stages - 1) * 3.0)
    assert ends == sorted(ends, reverse=True)


def _longest_path(stages: Sequence[StagePasses], microbatches: int) -> list[float]:
    """Return when each stage ends, by going over all passes until nothing changes."""
    count = len(stages)
    ends: dict[tuple[int, Task], float] = {}
    orders = [order(stage, count, microbatches) for stage in range(count)]
    for _ in range(2 * count * microbatches):
        for stage, tasks in enumerate(orders):
            before = 0.0
            for forward, number in tasks:
                other = stage - 1 if forward else stage + 1
                here = stages[stage].forward if forward else stages[stage].backward
                begin = before
                if 0 <= other < count:
                    link = stages[min(stage, other)].sending
                    begin = max(begin, ends.get((other, (forward, number)), 0.0) + link)
                before = ends[stage, (forward, number)] = begin + here.computing + here.exchanging
    return [ends[stage, tasks[-1]] for stage, tasks in enumerate(orders)]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(SECONDS, SECONDS, SECONDS, SECONDS, SECONDS), min_size=1, max_size=5),
    st.integers(1, 7),
)
def test_a_run_is_the_longest_path(numbers: list[tuple[float, ...]], microbatches: int) -> None:
    """Of passes and messages, where stages do not share cores."""
    stages = [StagePasses(Pass(a, b), Pass(c, d), e) for a, b, c, d, e in numbers]
    assert run(stages, microbatches, _alone) == pytest.approx(_longest_path(stages, microbatches))


def test_stages_that_share_a_core_take_turns() -> None:
    """Two stages on one core do all work one after the other; on two, their own."""
    stages = [_stage(1.0, 2.0), _stage(1.0, 2.0)]
    assert max(run(stages, 4, float)) == pytest.approx(2 * 4 * 3.0)
    assert max(run(stages, 4, _alone)) == pytest.approx(5 * 3.0)
    # A stage that waits for a message leaves its core to the others.
    apart = [StagePasses(Pass(1.0, 5.0), Pass(2.0), 0.0), _stage(1.0, 2.0)]
    assert max(run(apart, 1, float)) == pytest.approx(1.0 + 5.0 + 1.0 + 2.0 + 2.0)


class _Recorded:
    """A stage that writes down what a schedule of torch asks it for."""

    def __init__(self, index: int, count: int) -> None:
        self.stage_index, self.num_stages = index, count
        self.has_backward, self.is_first, self.is_last = False, index == 0, index == count - 1
        self.found: list[Task] = []

    def forward_one_chunk(self, number: int, *_args: object, **_more: object) -> None:
        self.found.append((True, number))

    def backward_one_chunk(self, number: int, **_more: object) -> None:
        self.found.append((False, number))

    def __getattr__(self, name: str) -> object:
        return lambda *_args, **_more: []


@pytest.mark.parametrize(("stages", "microbatches"), [(2, 2), (3, 7), (4, 4)])
def test_the_order_is_that_of_torch(stages: int, microbatches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its Schedule1F1B; and no stage ever has more in flight than is said."""
    for index in range(stages):
        stage = _Recorded(index, stages)
        schedule = Schedule1F1B(stage, microbatches)  # type: ignore[arg-type] # what it asks of a stage
        for name in ("_initialize_stage", "_maybe_compute_loss", "_maybe_get_loss", "_update_losses"):
            monkeypatch.setattr(schedule, name, lambda *_args, **_more: None)
        schedule._step_microbatches([()] * microbatches, [{}] * microbatches)
        assert stage.found == order(index, stages, microbatches)
        flying = most = 0
        for forward, _ in stage.found:
            flying += 1 if forward else -1
            most = max(most, flying)
        assert most == in_flight(index, stages, microbatches)
