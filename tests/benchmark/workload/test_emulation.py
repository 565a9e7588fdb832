"""Emulator: steps are as long as asked and kind to other threads; bounds of 1 % are bench/emulation.py's.

All steps together are never shorter than asked.

What is asserted holds on a machine that is busy with other things: a step may be late, and never early.
"""

from __future__ import annotations

import threading
import time
from itertools import accumulate
from statistics import median

import pytest
import torch

from voxload.benchmark.workload.durations import parse_durations
from voxload.benchmark.workload.emulation import Emulator, spin_until, tensors_in
from voxload.benchmark.workload.workload import Emulation
from voxload.errors import UsageError

BATCH = torch.zeros(2, 1, 4, 4, 4)

ROUNDING = 1e-9
LATE = 0.05
"""Seconds by which a step on a device may be late."""


class Clock:
    """A clock that only sleeps and spins move."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        """Sleep as time.sleep does."""
        self.slept.append(seconds)
        self.now += seconds

    def spin_until(self, stop: float) -> None:
        """Spin as spin_until does."""
        self.now = max(self.now, stop)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Give the emulator a clock of its own."""
    made = Clock()
    monkeypatch.setattr("voxload.benchmark.workload.emulation.time.perf_counter", lambda: made.now)
    monkeypatch.setattr("voxload.benchmark.workload.emulation.time.sleep", made.sleep)
    monkeypatch.setattr("voxload.benchmark.workload.emulation.spin_until", made.spin_until)
    return made


@pytest.mark.parametrize("kind", ["sleep", "spin"])
def test_a_step_takes_what_is_asked(kind: str) -> None:
    """All together never less, and one never less than half."""
    emulator = Emulator(Emulation(kind, "5ms"))
    begin = time.perf_counter()
    took = [emulator.compute(0, step, BATCH) for step in range(15)]
    assert time.perf_counter() - begin >= sum(took)
    assert all(total >= 0.005 * (step + 1) - ROUNDING for step, total in enumerate(accumulate(took)))
    assert min(took) >= 0.0025
    assert emulator.mean == 0.005


@pytest.mark.parametrize("kind", ["sleep", "spin"])
def test_steps_differ_as_drawn(kind: str, clock: Clock) -> None:
    """Each step is as long as its own draw, by a clock that nobody else holds up."""
    del clock
    text = "uniform:0,250ms"
    emulator, durations = Emulator(Emulation(kind, text, seed=1)), parse_durations(text)
    drawn = [durations.draw(1, 1, step) for step in range(6)]
    assert [emulator.compute(1, step, BATCH) for step in range(6)] == pytest.approx(drawn)
    assert max(drawn) - min(drawn) > 0.1


@pytest.mark.parametrize("kind", ["sleep", "spin"])
def test_lateness_is_made_up_for(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps after a late one are shorter, by half at most, until the sum is right; a long stop is not made up for."""
    now = [100.0]
    waits: list[float] = []
    late = iter([0.03, 0.0, 0.0, 0.0, 9.0, *[0.0] * 20])

    def last(_work: object, stop: float, _batch: object) -> None:
        waits.append(stop - now[0])
        now[0] = stop + next(late)

    monkeypatch.setattr(f"voxload.benchmark.workload.emulation.{kind.capitalize()}.last", last)
    monkeypatch.setattr("voxload.benchmark.workload.emulation.time.perf_counter", lambda: now[0])
    emulator = Emulator(Emulation(kind, "40ms"))
    took = [emulator.compute(0, step, BATCH) for step in range(4)]
    assert waits == pytest.approx([0.04, 0.02, 0.03, 0.04])
    assert sum(took) == pytest.approx(4 * 0.04)
    emulator.compute(0, 4, BATCH)
    after = [emulator.compute(0, step, BATCH) for step in range(5, 15)]
    assert sum(after) == pytest.approx(10 * 0.04 - 0.1)


def test_sleeping_leaves_the_processor(clock: Clock) -> None:
    """All of a step but its last moment is slept, so that it ends when it should; a spin sleeps at no time."""
    Emulator(Emulation("sleep", "250ms")).compute(0, 0, BATCH)
    assert clock.slept == [pytest.approx(0.25, abs=0.001)]
    clock.slept.clear()
    Emulator(Emulation("spin", "250ms")).compute(0, 0, BATCH)
    assert clock.slept == []


def test_spinning_lets_other_threads_run() -> None:
    """The interpreter lock is not held: another thread comes forward in the middle of a call."""
    moments: list[float] = []
    is_over = threading.Event()

    def note() -> None:
        while not is_over.wait(0.001):
            moments.append(time.perf_counter())

    thread = threading.Thread(target=note)
    thread.start()
    for _ in range(200):  # others may have all cores during a call, and not during all of them
        begin = time.perf_counter()
        spin_until(begin + 0.2)
        if any(begin + 0.05 < moment < begin + 0.15 for moment in moments):
            break
    else:
        moments.clear()
    is_over.set()
    thread.join()
    assert moments


def test_spinning_ends_at_its_moment() -> None:
    """Never before it; of one that has passed at once, and one that never comes is refused."""
    for seconds in (0.0, 1e-6, 1e-4, 1e-2):
        stop = time.perf_counter() + seconds
        spin_until(stop)
        assert time.perf_counter() >= stop - ROUNDING
    for passed in (0.0, -1.0, -1e300, float("-inf")):
        spin_until(passed)
    for never in (float("nan"), float("inf"), 1e300, 1e10):
        with pytest.raises(UsageError, match="moment"):
            spin_until(never)


def test_no_computing_takes_no_time() -> None:
    """And its mean is 0, whatever the durations say."""
    emulator = Emulator(Emulation("none", "10s"))
    assert emulator.compute(0, 0, BATCH) == 0.0
    assert emulator.mean == 0.0


def test_a_moved_mean_is_noted() -> None:
    """As the durations say it."""
    emulation = Emulation("sleep", "normal:10ms,10ms")
    assert Emulator(emulation).note == parse_durations("normal:10ms,10ms").note != ""
    assert Emulator(emulation).mean == pytest.approx(0.01288, rel=1e-3)


def test_unknown_kinds_and_durations_are_refused() -> None:
    """When the emulator is made, before anything runs."""
    with pytest.raises(UsageError, match="one of none, sleep, spin, gpu"):
        Emulator(Emulation("nap", "1"))
    with pytest.raises(UsageError, match="compute time"):
        Emulator(Emulation("sleep", "soon"))
    with pytest.raises(UsageError, match="seed"):
        Emulator(Emulation("sleep", "1", seed=-1))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_device_there_is_no_gpu_work() -> None:
    """An error that says what else there is."""
    with pytest.raises(UsageError, match=r"no CUDA device.*sleep or spin"):
        Emulator(Emulation("gpu", "1ms"))


@pytest.mark.gpu
@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint16])
def test_a_device_computes_as_long_as_asked(dtype: torch.dtype) -> None:
    """All together never less, rarely more; the device has nothing left to do at the end."""
    emulator = Emulator(Emulation("gpu", "10ms"))
    took = [emulator.compute(0, step, (BATCH.to(dtype), BATCH)) for step in range(11)]
    assert torch.cuda.current_stream().query()
    assert all(total >= 0.010 * (step + 1) - ROUNDING for step, total in enumerate(accumulate(took)))
    assert min(took) >= 0.005
    assert median(took) < 0.010 + LATE


def test_tensors_are_found_wherever_they_are() -> None:
    """In tuples, lists and mappings, in order."""
    a, b, c = torch.zeros(1), torch.ones(2), torch.ones(3)
    found = list(tensors_in(({"x": a, "id": "universe"}, [b, None], c)))
    assert [tensor.numel() for tensor in found] == [1, 2, 3]
