"""AllToAll: the slabs of a line in one collective, for lines on which many ranks need each other."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from voxload.engine.exchange.p2p import P2P, TIMEOUT_SECONDS, lost
from voxload.errors import InternalError
from voxload.grid import ProcessGrid


class AllToAll(P2P):
    """An Exchange like P2P that moves slabs by ``all_to_all_single``: one launch however many peers there are.

    Making one is collective, as for P2P; slabs are copied into and out of one buffer.

    Parameters
    ----------
    grid, timeout
        As for P2P.
    """

    def __init__(self, grid: ProcessGrid, *, timeout: float = TIMEOUT_SECONDS) -> None:
        super().__init__(grid, timeout=timeout)

    def start(self, axis: int, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> PendingAllToAll:  # type: ignore[override] # another kind of Pending
        """Begin to send and to receive along `axis`; see Exchange."""
        group, ranks = self._lines[axis], self._ranks[axis]
        tensors = [*outgoing.values(), *incoming.values()]
        if group is None:
            return PendingAllToAll(None, {}, self._timeout, self._subject)
        like = tensors[0] if tensors else torch.empty(0)
        sizes = [
            [part[place].numel() if place in part else 0 for place in range(len(ranks))]
            for part in (outgoing, incoming)
        ]
        packed = (
            torch.cat([outgoing[place].reshape(-1) for place in sorted(outgoing)]) if outgoing else like.new_empty(0)
        )
        buffer = like.new_empty(sum(sizes[1]))
        try:
            work = dist.all_to_all_single(buffer, packed, sizes[1], sizes[0], group=group, async_op=True)
        except RuntimeError as error:
            raise lost(self._subject, error) from error
        slots = dict(zip(sorted(incoming), torch.split(buffer, [size for size in sizes[1] if size]), strict=True))
        pending = PendingAllToAll(
            work, {place: (slots[place], incoming[place]) for place in incoming}, self._timeout, self._subject
        )
        pending.keep = packed
        return pending


class PendingAllToAll:
    """One collective under way, and where its parts go."""

    def __init__(
        self, work: dist.Work | None, parts: dict[int, tuple[Tensor, Tensor]], timeout: timedelta, subject: str
    ) -> None:
        self._work = work
        self._parts = parts
        self._timeout = timeout
        self._subject = subject
        self.keep: Tensor | None = None

    def wait(self) -> None:
        """Wait for the collective, then copy each peer's part to its tensor."""
        if self._work is None:
            return
        try:
            done = self._work.wait()
        except RuntimeError as error:
            raise lost(self._subject, error) from error
        if done is False:
            raise InternalError(self._subject, found="a message that did not complete")
        for part, tensor in self._parts.values():
            tensor.view(-1).copy_(part)
        self._work, self._parts, self.keep = None, {}, None
