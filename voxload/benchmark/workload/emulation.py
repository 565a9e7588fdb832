"""Emulator: makes believe that a network computes on each batch, asleep, on a core or on a GPU.

``sleep`` leaves the processor to the loader, as a network on an accelerator does; ``spin`` takes one core from it, as
one on the processor does; ``gpu`` keeps a GPU busy. ``python`` and ``torch-small`` are so much work of the loop's own
thread, which takes longer where the loader takes from it. Which is right depends on what the real job does meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import torch

from voxload.benchmark.workload.amounts import Amount, bytecode, small_operations
from voxload.benchmark.workload.durations import parse_durations
from voxload.benchmark.workload.workload import Emulation
from voxload.core.library import function
from voxload.errors import UsageError

_spin = function("spin_until_moment", "i", "n")
_END = 9.2e9
"""Seconds that the clock never shows, and that 64 bits of nanoseconds hold: 292 years."""


def spin_until(stop: float) -> None:
    """Keep this thread's core busy until time.perf_counter() shows `stop`; other threads of Python run meanwhile.

    Safe to call from many threads at once. Nothing ends it before, a signal neither.

    Raises
    ------
    UsageError
        When the clock never shows it.
    """
    if not stop < _END:
        raise UsageError("moment to spin until", found=f"{stop:g} s", expected=f"less than {_END:g} s")
    _spin(int(max(stop, 0.0) * 1e9))


cuda: Any = torch.cuda
"""Its events are public, and torch leaves them without types."""
_CYCLES = 20_000_000
"""Clock cycles of the kernel that is timed to learn the rate: some 10 ms, so that its launch does not count."""
_FIRST = 0.9
"""Share of the time that is left that a kernel gets: the rate changes with the load, and too long cannot be mended."""
_LAUNCH = 20e-6
"""Seconds of launching a kernel and hearing of its end, for which no kernel can be made."""


class Gpu:
    """Keeps the current CUDA device busy with kernels on the current stream; used by one thread.

    A batch in host memory is brought to the device first, as a training loop would do; that is part of the time. Every
    byte is read once. The device computes on one multiprocessor: power and memory bandwidth are not those of training.

    Raises
    ------
    UsageError
        Without a CUDA device.
    """

    def __init__(self) -> None:
        if not cuda.is_available():
            raise UsageError(
                "compute 'gpu'",
                found="no CUDA device",
                expected="one for this process",
                remedy="see that torch is built for CUDA and CUDA_VISIBLE_DEVICES names a device, or say sleep or spin",
            )
        self._device = torch.device("cuda", cuda.current_device())
        _kernel(_CYCLES // 100)  # the first launch loads the module
        self._rate = _CYCLES / _timed(_CYCLES)

    def last(self, stop: float, batch: Any) -> None:
        """Return at `stop`, the work on the current stream done; later where bringing and reading the batch takes so.

        Only the current stream is waited for: the loader copies the next batch on another one meanwhile.
        """
        for tensor in tensors_in(batch):
            # Every type can be copied, and not every one be summed.
            tensor.to(self._device, non_blocking=True).clone()
        cuda.current_stream().synchronize()
        share = _FIRST
        while (left := stop - time.perf_counter()) > _LAUNCH:
            cycles = max(1, int((left * share - _LAUNCH) * self._rate))
            spent = _timed(cycles)
            if left > 100 * _LAUNCH:
                self._rate = cycles / spent
            share = 1.0
        while time.perf_counter() < stop:
            pass


def tensors_in(batch: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of a batch, in order; what is neither a tensor nor a collection is left out."""
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for part in batch.values():
            yield from tensors_in(part)
    elif isinstance(batch, list | tuple):
        for part in batch:
            yield from tensors_in(part)


def _timed(cycles: int) -> float:
    """Run a kernel of so many cycles; return its seconds on the device."""
    begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    _kernel(cycles)
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3


def _kernel(cycles: int) -> None:
    """Launch a kernel of so many cycles of the device's clock."""
    cuda._sleep(cycles)  # noqa: SLF001 - torch's own tests stand on it, and it needs no compiler


_LATE = 0.00025
"""Seconds by which a sleeper may wake up too late: the kernel's timer slack, 50 us, and the way back to a core."""


_CARRIED = 0.1
"""Most seconds of lateness that later steps make up for: a hypervisor's pause, and not a machine that stood still."""


class Work(Protocol):
    """What passes the time; used by one thread."""

    def last(self, stop: float, batch: Any) -> None:
        """Return as soon as time.perf_counter() shows `stop`, and not before."""
        ...


class Sleep:
    """Sleeps; the last quarter of a millisecond is spun, so that steps of a few milliseconds are as long as asked."""

    def last(self, stop: float, batch: Any) -> None:
        """Return at `stop`, whatever the batch."""
        del batch
        left = stop - _LATE - time.perf_counter()
        if left > 0:
            time.sleep(left)  # clock_nanosleep with an absolute deadline: signals do not make it longer
        spin_until(stop)


class Spin:
    """Keeps this thread's core busy, without the interpreter lock."""

    def last(self, stop: float, batch: Any) -> None:
        """Return at `stop`, whatever the batch."""
        del batch
        spin_until(stop)


class Emulator:
    """The computing of each step; used by one thread.

    Parameters
    ----------
    emulation
        What is asked for; ranks of equal seed compute equally long in each step.

    Raises
    ------
    UsageError
        When the kind or the durations are unknown, the seed is negative, or it wants a GPU and there is none.
    """

    def __init__(self, emulation: Emulation) -> None:
        self._durations = parse_durations(emulation.seconds)
        self._seed = emulation.seed
        if self._seed < 0:
            raise UsageError("seed of the compute time", found=str(self._seed), expected="0 or more")
        if emulation.kind not in KINDS:
            raise UsageError("compute", found=repr(emulation.kind), expected=f"one of {', '.join(KINDS)}")
        make, measure = _KINDS.get(emulation.kind), _AMOUNTS.get(emulation.kind)
        self._work = make() if make is not None else None
        self._amount = measure() if measure is not None else None
        self._late = 0.0

    @property
    def mean(self) -> float:
        """Mean seconds of a step."""
        return self._durations.mean if self._is_computing else 0.0

    @property
    def note(self) -> str:
        """What a reader must know about the durations; empty for nothing."""
        return self._durations.note if self._is_computing else ""

    @property
    def _is_computing(self) -> bool:
        return self._work is not None or self._amount is not None

    def alone(self, epoch: int, step: int) -> float | None:
        """Return the seconds that a step's work takes where nothing else runs; None where it is made to take them."""
        return None if self._amount is None else self._durations.draw(self._seed, epoch, step)

    def compute(self, epoch: int, step: int, batch: Any) -> float:
        """Compute for as long as is drawn for this step; return the seconds that it took.

        A step that ends late, since a sleeper is not woken up in time, is made up for by the next ones, each at least
        half as long as drawn: so the mean is right. `batch` is what the loader delivered: a tensor, or tuples, lists
        and mappings of them.
        """
        if not self._is_computing:
            return 0.0
        begin = time.perf_counter()  # drawing takes a twentieth of a millisecond, and is part of the step
        seconds = self._durations.draw(self._seed, epoch, step)
        if self._amount is not None:
            self._amount.do(seconds)
        elif self._work is not None:
            self._work.last(begin + seconds - min(self._late, seconds / 2), batch)
        took = time.perf_counter() - begin
        if self._work is not None:
            self._late = min(max(self._late + took - seconds, 0.0), _CARRIED)
        return took


_KINDS: dict[str, Callable[[], Work] | None] = {"none": None, "sleep": Sleep, "spin": Spin, "gpu": Gpu}
_AMOUNTS: dict[str, Callable[[], Amount]] = {"python": bytecode, "torch-small": small_operations}
KINDS = (*_KINDS, *_AMOUNTS)
"""Names of all kinds."""
