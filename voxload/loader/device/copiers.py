"""Copiers: how bytes come to a device, and how its consumer's work and the copies wait for each other.

The CUDA implementation orders work by streams and events, and never lets the host wait. The host's own copies at
once, so that its events have always happened; the code above is one and the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, cast

import torch

from voxload.errors import UsageError

Device = torch.device | str | int
"""How callers name a device; a number is that of a CUDA device."""


class Event(Protocol):
    """A point in a device's work."""

    def query(self) -> bool:
        """Tell whether the device has come to it."""
        ...

    def synchronize(self) -> None:
        """Wait until the device has come to it."""
        ...


class Copier(Protocol):
    """Copies to one device, beside its consumer's work; used by the consumer's thread."""

    device: torch.device

    def empty(self, nbytes: int) -> torch.Tensor:
        """Return bytes on the device, all pages of which are there."""
        ...

    def bring(self, values: torch.Tensor) -> torch.Tensor:
        """Return a fresh copy of a few values on the device, ahead of the next `copy`, whose event covers it."""
        ...

    def copy(self, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], *, after: Event | None) -> Event:
        """Begin to copy host tensors onto equally many bytes on the device; return their end.

        Parameters
        ----------
        pairs
            Target and source. Sources must stay as they are until the event.
        after
            What the copies wait for.
        """
        ...

    def hand_over(self, tensors: Iterable[torch.Tensor], event: Event) -> None:
        """Let what the consumer does from now on wait for an event, and use these tensors."""
        ...

    def used(self) -> Event:
        """Return the end of all that the consumer has asked of the device so far."""
        ...


class _Happened:
    """The event of a copy that was made at once."""

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        return


class HostCopier:
    """The host as a device: copies at once, into memory of its own."""

    def __init__(self) -> None:
        self.device = torch.device("cpu")

    def empty(self, nbytes: int) -> torch.Tensor:
        """See Copier."""
        return torch.empty(nbytes, dtype=torch.uint8).fill_(0)

    def bring(self, values: torch.Tensor) -> torch.Tensor:
        """See Copier."""
        return values.clone()

    def copy(self, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], *, after: Event | None) -> Event:
        """See Copier."""
        if after is not None:
            after.synchronize()
        for target, source in pairs:
            target.copy_(source)
        return _Happened()

    def hand_over(self, tensors: Iterable[torch.Tensor], event: Event) -> None:
        """See Copier; there is nothing to wait for."""

    def used(self) -> Event:
        """See Copier: what the host has done is done."""
        return _Happened()


class CudaCopier:
    """Copies on a stream of its own, which waits for the consumer's stream by events only, and it for that.

    The consumer's stream is the one that is current in its thread when it asks for a batch. See the CUDA C++
    Programming Guide, asynchronous concurrent execution, and PyTorch, CUDA semantics.

    Parameters
    ----------
    device
        The CUDA device, with its number.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call] # torch's

    def empty(self, nbytes: int) -> torch.Tensor:
        """See Copier; the memory belongs to the copy stream, so that torch's allocator gives it to nobody too early."""
        with torch.cuda.stream(self._stream):
            return torch.empty(nbytes, dtype=torch.uint8, device=self.device)

    def bring(self, values: torch.Tensor) -> torch.Tensor:
        """See Copier.

        Out of pageable memory CUDA would first wait for the copy stream, and thus for the consumer's work. torch's
        pinned allocator keeps the few bytes until their copy has ended.
        """
        with torch.cuda.stream(self._stream):
            return values.pin_memory().to(self.device, non_blocking=True)

    def copy(self, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], *, after: Event | None) -> Event:
        """See Copier."""
        with torch.cuda.stream(self._stream):
            if after is not None:
                self._stream.wait_event(cast("torch.cuda.Event", after))  # only ours come back to us
            for target, source in pairs:
                target.copy_(source, non_blocking=True)
            return cast("Event", self._stream.record_event())

    def hand_over(self, tensors: Iterable[torch.Tensor], event: Event) -> None:
        """See Copier."""
        stream = torch.cuda.current_stream(self.device)
        stream.wait_event(cast("torch.cuda.Event", event))  # as above
        for tensor in tensors:
            tensor.record_stream(stream)  # should all of it go while the stream still works on it

    def used(self) -> Event:
        """See Copier."""
        return cast("Event", torch.cuda.current_stream(self.device).record_event())


def parse_device(given: Device | None) -> torch.device | None:
    """Return the device that a caller names; ``cuda`` without a number stays open until it is used.

    Raises
    ------
    UsageError
        For a device of another kind, and for a CUDA device that this process does not have.
    """
    if given is None:
        return None
    try:
        device = torch.device("cuda", given) if isinstance(given, int) else torch.device(given)
    except RuntimeError as error:
        raise UsageError("device", found=repr(given), expected="None, 'cpu' or a CUDA device") from error
    if device.type not in {"cpu", "cuda"}:
        raise UsageError("device", found=str(device), expected="None, 'cpu' or a CUDA device")
    count = torch.cuda.device_count() if device.type == "cuda" else 1
    if count <= (device.index or 0):
        raise UsageError(
            "device",
            found=str(device),
            expected=f"one of {count} CUDA devices" if count else "a CUDA device, of which this process has none",
            remedy="leave device out for CPU tensors" if not count else "choose another one",
        )
    return device


def parse_keep(given: int) -> int:
    """Return how many batches stay valid on a device; raises UsageError where that is no positive number."""
    if given < 1:
        raise UsageError("keep", found=repr(given), expected="how many batches stay valid on the device, 1 or more")
    return given


def copier_to(device: torch.device) -> Copier:
    """Return what copies to a device; of ``cuda`` without a number, to the one that is current now."""
    return HostCopier() if device.type == "cpu" else CudaCopier(with_index(device))


def with_index(device: torch.device) -> torch.device:
    """Return a CUDA device with its number: that of the current one where it has none.

    Raises UsageError in a process that was forked from one that uses CUDA, of which the device knows nothing.
    """
    if device.type == "cuda" and torch.cuda._is_in_bad_fork():  # noqa: SLF001 - torch asks itself, and has no other way
        raise UsageError(
            "device",
            found=f"{device} in a process forked from one that uses CUDA",
            expected="a process of its own",
            remedy="start it by multiprocessing's spawn or forkserver, or take batches on the host there",
        )
    is_open = device.type == "cuda" and device.index is None
    return torch.device("cuda", torch.cuda.current_device()) if is_open else device
