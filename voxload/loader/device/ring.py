"""DeviceRing: a few reused buffers on the device, filled beside the consumer's work.

Rules of this file:

1. A buffer is free, or being filled, or with the consumer. The consumer has the `keep` batches it got last; asking for
   the next one gives the oldest of them back.
2. A buffer that came back is filled again only behind all that its consumer had asked of the device by then: the copy
   waits, the host does not.
3. A host batch is held until its copy has ended; then its slot is read into again.
4. The stored type crosses the bus, as bytes.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from voxload.errors import InternalError, UsageError
from voxload.loader.batch import Batch, stacked
from voxload.loader.device.copiers import Copier, Event
from voxload.loader.reading.staging import BatchLayout
from voxload.units import format_bytes

_log = logging.getLogger("voxload.loader.device")


@dataclass(slots=True)
class Buffer:
    """Room for one batch on the device."""

    memory: torch.Tensor
    """Bytes, laid out like a staging slot."""
    used: Event | None = None
    """The end of what its last consumer does with it."""


@dataclass(frozen=True, slots=True)
class Filled:
    """A batch that is on the device when its event has happened."""

    batch: Batch
    """Its tensors look into the buffer."""
    buffer: Buffer
    event: Event


class DeviceRing:
    """Buffers for one more batch than the consumer keeps; used by the consumer's thread.

    Parameters
    ----------
    copier
        Which copies.
    layout
        Shape of a buffer.
    keep
        Batches that stay valid: the one got last and those before it.
    budget
        Most bytes of all buffers together.

    Raises
    ------
    UsageError
        When the budget does not hold the buffers, and nothing is allocated then; and when the device does not.
    """

    def __init__(self, copier: Copier, layout: BatchLayout, *, keep: int, budget: int) -> None:
        self.nbytes = (keep + 1) * layout.nbytes
        if self.nbytes > budget:
            raise UsageError(
                "buffers on the device",
                found=f"a budget of {format_bytes(budget)}",
                expected=f"{format_bytes(self.nbytes)} or more for {keep} batches that are kept and the next one",
                remedy="raise staging, or lower keep or batch_size",
            )
        self.copier = copier
        self._keep = keep
        self._offsets = layout.offsets
        try:
            self._free = deque(Buffer(copier.empty(max(layout.nbytes, 1))) for _ in range(keep + 1))
        except torch.OutOfMemoryError as error:
            raise UsageError(
                f"memory of {copier.device}",
                found=str(error).partition(". ")[0],
                expected=f"{format_bytes(self.nbytes)} for {keep} batches that are kept and the next one",
                remedy="lower keep or batch_size, or make room on the device",
            ) from error
        self._given: deque[Buffer] = deque()
        _log.info("%d buffers of %s on %s", keep + 1, format_bytes(layout.nbytes), copier.device)

    def retire(self) -> None:
        """Take back the oldest of the consumer's batches, right before it gets another one."""
        while len(self._given) >= self._keep:
            buffer = self._given.popleft()
            buffer.used = self.copier.used()
            self._free.append(buffer)

    def fill(self, batch: Batch) -> Filled:
        """Begin to copy a host batch into a free buffer, and return it as it will be on the device.

        The host batch must be kept until the event. Raises UsageError where it is larger than a buffer, and
        DataError where its blocks are not of one shape.
        """
        blocks = [stacked(volume) for volume in batch.volumes]
        for volume, first, end in zip(blocks, self._offsets, self._offsets[1:], strict=False):
            if volume.nbytes > end - first:
                raise UsageError(
                    "device",
                    found=f"a batch of {volume.dtype} {tuple(volume.shape)}",
                    expected=f"{format_bytes(end - first)} at most, as the batch size and the first sample say",
                    remedy="give the batch sampler an attribute batch_size, and all samples one shape",
                )
        buffer = self._free[0]
        views = [
            _part(buffer.memory, offset, volume)
            for offset, volume in zip(self._offsets, blocks, strict=False)  # the last offset is the end
        ]
        targets = None if batch.targets is None else self.copier.bring(batch.targets)
        pairs = list(zip(views, map(_as_bytes, blocks), strict=True))
        event = self.copier.copy(pairs, after=buffer.used)
        self._free.popleft()
        volumes = tuple(view.view(one.dtype).view(one.shape) for view, one in zip(views, blocks, strict=True))
        return Filled(replace(batch, volumes=volumes, targets=targets), buffer, event)

    def hand_out(self, filled: Filled) -> Batch:
        """Give a filled buffer to the consumer: what it does with it waits until it is filled."""
        batch = filled.batch
        others = () if batch.targets is None else (batch.targets,)
        self.copier.hand_over((filled.buffer.memory, *others), filled.event)
        self._given.append(filled.buffer)
        return batch

    def take_back(self, filled: Sequence[Filled]) -> None:
        """Take back buffers that were filled and never handed out; copies follow each other anyway."""
        self._free.extend(one.buffer for one in filled)


def _as_bytes(values: torch.Tensor) -> torch.Tensor:
    """Return a contiguous tensor's bytes, without a copy."""
    return values.view(-1).view(torch.uint8)


def _part(memory: torch.Tensor, offset: int, values: torch.Tensor) -> torch.Tensor:
    """Return a buffer's bytes for a tensor that was laid out from an offset on."""
    found = memory[offset : offset + values.nbytes]
    if len(found) < values.nbytes:
        raise InternalError(
            "a batch", found=f"{values.nbytes} bytes", expected=f"{len(found)} bytes of its slot at most"
        )
    return found
