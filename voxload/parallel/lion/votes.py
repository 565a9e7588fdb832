"""Ballot: the update of one bucket, from what this group would do to what all groups have decided."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from voxload.errors import UsageError
from voxload.parallel.lion.buckets import MOMENTUM, Bucket
from voxload.parallel.lion.levels import Combine, Levels
from voxload.parallel.lion.wire import Coming, Wire

STEPS = "steps"
"""Name of the number of steps behind, among the options of a group of parameters."""


class Ballot:
    """An update on its way; made by `opened`, then counted, then decided."""

    def __init__(self, bucket: Bucket, levels: Levels, wire: Wire, scratch: Tensor) -> None:
        self.bucket = bucket
        self._levels, self._wire, self._scratch = levels, wire, scratch
        self._coming: Coming | None = None
        self._own: list[Tensor | None] = []

    def decide_alone(self, updates: list[Tensor | None]) -> None:
        """Take the updates of the only group."""
        self._own = updates

    def send(self, packed: Tensor, notes: Tensor) -> None:
        """Begin to send each group its row, with the same notes."""
        self._coming = self._wire.dealt(torch.cat([packed, notes.expand(len(packed), -1)], 1))

    def count(self) -> None:
        """Add up what came from all groups, once it is there, and begin to tell them."""
        if self._coming is None:
            return
        came = self._coming.wait()
        length = self.bucket.length * self._levels.bits // 8
        summed = self._levels.summed(came[:, :length])
        self._coming = self._wire.gathered_across(torch.cat([summed, _any(came[:, length:])]))

    def decided(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield each parameter that has a gradient anywhere, and its update, equal on all ranks, until the next one."""
        if self._coming is None:
            for each, own in zip(self.bucket.parameters, self._own, strict=True):
                if own is not None:
                    yield each, own
            return
        rows = self._wire.gathered_in_group(self._coming.wait()).flatten(0, 1)
        length = self.bucket.length * self._levels.result_bits // 8
        flat = self._scratch[: self.bucket.size]
        self._levels.unpack_into(rows[:, :length], flat.view(len(rows), -1))
        notes = _any(rows[:, length:])
        if flat.device.type != "cpu" or notes[0] > 0:
            # What is no number anywhere makes all of them none, and nobody has to ask a device.
            flat += torch.where(notes[0] > 0, torch.nan, 0.0)
        is_there = [each.grad is not None for each in self.bucket.parameters]
        if not all(is_there):
            bits = np.unpackbits(notes[1:].cpu().numpy(), count=len(is_there), bitorder="little")
            is_there = [bool(bit) for bit in bits]
        for each, update, there in zip(self.bucket.parameters, self.bucket.views(flat), is_there, strict=True):
            if there:
                yield each, update


def opened(bucket: Bucket, state: Mapping[Any, Any], scratch: Tensor, levels: Levels, wire: Wire) -> Ballot:
    """Return a ballot whose update is on its way to the other groups.

    Parameters
    ----------
    bucket
        Parameters with their gradients.
    state
        Where their momentum is kept; made where there is none yet.
    scratch
        A vector that is as long as the bucket, or longer; used until this returns, and while it is decided.
    levels
        What the update becomes.
    wire
        To the others.

    Raises
    ------
    UsageError
        For a sparse gradient.
    """
    ballot = Ballot(bucket, levels, wire, scratch)
    is_alone = wire.groups == 1 or levels.combine is Combine.EXACT
    for each in bucket.parameters:
        if each.grad is not None and each.grad.is_sparse:
            raise UsageError("Lion", found="a sparse gradient", expected="dense ones", remedy="give sparse=False")
        if not state.get(each) and not (is_alone and each.grad is None):
            state[each][MOMENTUM] = torch.zeros_like(each, memory_format=torch.contiguous_format)
    beta = bucket.options["betas"][0]
    if is_alone:
        ballot.decide_alone([_update(each, state, beta) for each in bucket.parameters])
        return ballot
    bucket.blank(scratch)
    views = bucket.views(scratch)
    for each, view in zip(bucket.parameters, views, strict=True):
        view.copy_(state[each][MOMENTUM]).mul_(beta)
        if each.grad is not None:
            view.add_(each.grad, alpha=1.0 - beta)
    if levels.bits > 1:
        _scale(views, levels.limit)
    own = scratch[: bucket.size].view(wire.places, wire.groups, bucket.length)[wire.place]
    packed, is_none = levels.packed(own, odd=bool((bucket.options[STEPS] + wire.group) % 2))
    there = np.packbits([each.grad is not None for each in bucket.parameters], bitorder="little")
    ballot.send(packed, torch.cat([is_none, torch.from_numpy(there).to(is_none.device)]))
    return ballot


def _update(parameter: Tensor, state: Mapping[Any, Any], beta: float) -> Tensor | None:
    """Return Lion's own update; None without a gradient."""
    if parameter.grad is None:
        return None
    momentum: Tensor = state[parameter][MOMENTUM]
    update = momentum.mul(beta).add_(parameter.grad, alpha=1.0 - beta)
    is_none = update.isnan()
    return update.sign_().masked_fill_(is_none, torch.nan)  # torch's sign of what is no number is 0


def _scale(views: Sequence[Tensor], limit: int) -> None:
    """Bring the mean size of each tensor's numbers to half of the highest level, in place: the L1 quantiser's scale."""
    for view in views:
        mean = view.abs().mean()
        view.mul_(torch.where(mean > 0, limit / (2 * mean), torch.where(mean == 0, 0.0, torch.nan)))


def _any(rows: Tensor) -> Tensor:
    """Return the bits that any of the rows ``(R, n)`` has."""
    while len(rows) > 1:
        half = len(rows) // 2
        rows = torch.cat([rows[:half] | rows[half : 2 * half], rows[2 * half :]])
    return rows[0]
