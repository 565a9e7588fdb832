"""Amounts: so much work, whatever else runs; how long it takes alone is measured once."""

from __future__ import annotations

import pytest
import torch

from voxload.benchmark.workload.amounts import Amount
from voxload.benchmark.workload.emulation import Emulator
from voxload.benchmark.workload.workload import Emulation

BATCH = torch.zeros(1, 1, 2, 2, 2)


def test_work_is_as_much_as_takes_so_long_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only the work moves: the middle of many measurements counts, and no later one."""
    now, each, asked = 100.0, 3e-6, []

    def rounds(count: int) -> None:
        nonlocal now
        asked.append(count)
        now += count * each * (20 if len(asked) in (1, 5, 9) else 1)  # another process had the core

    monkeypatch.setattr("voxload.benchmark.workload.amounts.time.perf_counter", lambda: now)
    amount = Amount(rounds)
    each *= 2
    begin = now
    amount.do(0.06)
    assert asked[-1] == 20_000
    assert now - begin == pytest.approx(0.12)


@pytest.mark.parametrize("kind", ["python", "torch-small"])
def test_a_step_is_work_of_the_loop(kind: str) -> None:
    """Each step is as much as is drawn for it; what it takes is told, and beside it what it takes alone."""
    emulator = Emulator(Emulation(kind, "uniform:1ms,3ms", seed=2))
    assert emulator.mean == pytest.approx(0.002)
    alone = [emulator.alone(0, step) for step in range(4)]
    assert alone == [emulator.alone(0, step) for step in range(4)]
    assert all(seconds is not None and 0.001 <= seconds <= 0.003 for seconds in alone)
    assert all(emulator.compute(0, step, BATCH) > 0 for step in range(4))


@pytest.mark.parametrize("kind", ["none", "sleep", "spin"])
def test_a_step_of_time_takes_no_longer_beside_others(kind: str) -> None:
    """Of such there is no time that it takes alone."""
    assert Emulator(Emulation(kind, "1ms")).alone(0, 0) is None
