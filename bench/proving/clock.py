"""Clocks: when a device begins and ends what it is asked to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from voxload.loader.device.copiers import Copier, CudaCopier, Event, HostCopier

Pairs = Sequence[tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True, slots=True)
class Span:
    """Something that a device did."""

    what: str
    """``copy`` or ``compute``."""
    start: float
    """Seconds since the clock was started."""
    stop: float
    """Likewise."""


@dataclass
class HostClock:
    """The host's own time: it does what it is asked to at once."""

    spans: list[Span] = field(default_factory=list)
    _start: float = field(default_factory=time.perf_counter)

    @contextmanager
    def span(self, what: str) -> Iterator[None]:
        """Note what is done inside."""
        start = time.perf_counter()
        yield
        self.spans.append(Span(what, start - self._start, time.perf_counter() - self._start))

    def restart(self) -> None:
        """Begin anew."""
        self.spans.clear()
        self._start = time.perf_counter()

    def read(self) -> list[Span]:
        """Return what was noted."""
        return list(self.spans)


class CudaClock:
    """A CUDA device's time, by events on the streams that the work is on."""

    def __init__(self) -> None:
        self._begun = self._mark()
        self._marks: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []

    def restart(self) -> None:
        """Begin anew."""
        self._marks.clear()
        self._begun = self._mark()

    @contextmanager
    def span(self, what: str) -> Iterator[None]:
        """Note what is asked of the current stream inside."""
        start = self._mark()
        yield
        self._marks.append((what, start, self._mark()))

    def read(self) -> list[Span]:
        """Return what was noted; waits for the device."""
        torch.cuda.synchronize()
        found = []
        for what, start, stop in self._marks:
            begin = self._begun.elapsed_time(start) / 1e3
            found.append(Span(what, begin, begin + start.elapsed_time(stop) / 1e3))
        return found

    @staticmethod
    def _mark() -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call] # torch's
        event.record()
        return event


Clock = HostClock | CudaClock


class TimedHostCopier(HostCopier):
    """The loader's own copier, watched."""

    def __init__(self, clock: HostClock) -> None:
        super().__init__()
        self._clock = clock

    def copy(self, pairs: Pairs, *, after: Event | None) -> Event:
        """See Copier."""
        with self._clock.span("copy"):
            return super().copy(pairs, after=after)


class TimedCudaCopier(CudaCopier):
    """The loader's own copier, watched on its stream."""

    def __init__(self, device: torch.device, clock: CudaClock) -> None:
        super().__init__(device)
        self._clock = clock

    def copy(self, pairs: Pairs, *, after: Event | None) -> Event:
        """See Copier; what the copy waits for is not part of it."""
        super().copy((), after=after)
        with torch.cuda.stream(self._stream), self._clock.span("copy"):
            return super().copy(pairs, after=None)


def timed_copier(device: torch.device, clock: Clock) -> Copier:
    """Return the copier of a device, watched by its clock."""
    return TimedHostCopier(clock) if isinstance(clock, HostClock) else TimedCudaCopier(device, clock)


def clock_of(device: torch.device) -> Clock:
    """Return a clock that begins now."""
    return CudaClock() if device.type == "cuda" else HostClock()


def seconds(device: torch.device, call: Callable[[], object], repeats: int = 1) -> float:
    """Return how long a call takes, the device's work included."""
    _wait(device)
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    _wait(device)
    return (time.perf_counter() - start) / repeats


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
