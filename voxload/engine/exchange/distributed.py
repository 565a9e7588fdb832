"""Exchanges over torch.distributed: point-to-point messages, or one collective for each line of the grid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor

from voxload.engine.exchange.protocol import registered
from voxload.errors import InternalError, UsageError
from voxload.geometry import SPATIAL_AXES
from voxload.grid import ProcessGrid

TIMEOUT_SECONDS = 300.0
"""How long a rank waits for its peers before it gives up."""

_CONTROL = "gloo"
"""Backend that carries numbers: they are needed by the host, whatever device the volumes live on."""


class P2P:
    """An Exchange between processes, over torch.distributed (gloo on the host, NCCL on GPUs).

    Making one is collective: every rank of the world must do it at the same point of its program, because all
    process groups are created everywhere in the same order.

    Parameters
    ----------
    grid
        This rank's view of the grid; the initialised default process group must have its size and rank.
    timeout
        Seconds to wait for a peer.

    Raises
    ------
    UsageError
        When torch.distributed is not initialised or does not fit the grid.
    """

    carries_graph = False

    def __init__(self, grid: ProcessGrid, *, timeout: float = TIMEOUT_SECONDS) -> None:
        _require_world(grid)
        self._timeout = timedelta(seconds=timeout)
        self._ranks = tuple(grid.axis_ranks(axis) for axis in range(len(SPATIAL_AXES)))
        backend, everyone = str(dist.get_backend()), tuple(range(grid.world_size))
        groups: dict[tuple[tuple[int, ...], str], dist.ProcessGroup] = {}
        for ranks, kind in _wanted(grid, backend):
            if len(ranks) > 1 and (ranks, kind) not in groups:
                # Every rank creates every group, its own or not: torch requires it, and it fixes the order.
                groups[ranks, kind] = dist.new_group(list(ranks), timeout=self._timeout, backend=kind)
        self._lines = tuple(groups.get((ranks, backend)) for ranks in self._ranks)
        self._sums = groups.get((grid.group_ranks, backend)), groups.get((everyone, backend))
        self._control = groups.get((grid.group_ranks, _CONTROL))
        self._size = grid.group_size
        self.key = registered(self)
        self._subject = f"rank {grid.rank}'s exchange with ranks {', '.join(str(rank) for rank in grid.group_ranks)}"

    def __deepcopy__(self, memo: dict[int, object]) -> P2P:
        # Copies of a model (a moving average of its weights, say) talk over the same connections.
        return self

    def start(self, axis: int, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> PendingP2P:
        """Begin to send and receive along `axis`; see Exchange."""
        group, ranks = self._lines[axis], self._ranks[axis]
        # Peers are global ranks: a line rarely starts at rank 0.
        operations = [
            dist.P2POp(function, tensor, ranks[place], group)
            for function, tensors in ((dist.isend, outgoing), (dist.irecv, incoming))
            for place, tensor in tensors.items()
        ]
        if not operations:
            return PendingP2P([], (), self._timeout, self._subject)
        try:
            works = dist.batch_isend_irecv(operations)
        except RuntimeError as error:
            raise lost(self._subject, error) from error
        return PendingP2P(works, (*outgoing.values(), *incoming.values()), self._timeout, self._subject)

    def reduce(self, tensor: Tensor, *, world: bool) -> None:
        """Sum over the sample group or the world; see Exchange."""
        group = self._sums[world]
        if group is None:
            return
        try:
            dist.all_reduce(tensor, group=group)
        except RuntimeError as error:
            raise lost(self._subject, error) from error

    def share(self, numbers: Sequence[int]) -> list[tuple[int, ...]]:
        """Return the numbers of every rank of the sample group; see Exchange."""
        mine = torch.tensor(numbers, dtype=torch.int64)
        if self._control is None:
            return [tuple(mine.tolist())]
        everyone = [torch.empty_like(mine) for _ in range(self._size)]
        try:
            dist.all_gather(everyone, mine, group=self._control)
        except RuntimeError as error:
            raise lost(self._subject, error) from error
        return [tuple(row.tolist()) for row in everyone]


class PendingP2P:
    """Operations of torch.distributed under way, and the tensors that they use."""

    def __init__(
        self, works: Sequence[dist.Work], tensors: tuple[Tensor, ...], timeout: timedelta, subject: str
    ) -> None:
        self._works = works
        self._tensors = tensors
        self._timeout = timeout
        self._subject = subject

    def wait(self) -> None:
        """Wait for all works: gloo gives one per message, NCCL one for the batch."""
        on_host = all(tensor.device.type == "cpu" for tensor in self._tensors)
        for work in self._works:
            try:
                # On a GPU a limit would block the host until the message is there; the group's own limit holds.
                done = work.wait(self._timeout) if on_host else work.wait()
            except RuntimeError as error:
                raise lost(self._subject, error) from error
            if done is False:
                raise InternalError(self._subject, found="a message that did not complete")
        self._works, self._tensors = [], ()


_EXCHANGES: WeakKeyDictionary[dist.ProcessGroup, dict[tuple[int, int, int], P2P]] = WeakKeyDictionary()
"""One exchange per grid and world: several models on one grid share their connections."""


def exchange_of(grid: ProcessGrid) -> P2P:
    """Return this process's exchange for `grid`, made at the first call; collective like P2P itself."""
    _require_world(grid)
    world = dist.distributed_c10d._get_default_group()  # noqa: SLF001 - dist.group.WORLD is None to type checkers
    known = _EXCHANGES.setdefault(world, {})
    if grid.spatial not in known:
        known[grid.spatial] = P2P(grid)
    return known[grid.spatial]


def _require_world(grid: ProcessGrid) -> None:
    """Raise UsageError unless torch.distributed runs with the grid's size and rank."""
    if not dist.is_available() or not dist.is_initialized():
        raise UsageError(
            f"a model split over {grid.spatial}",
            found="torch.distributed not initialised",
            remedy="call torch.distributed.init_process_group() before voxload.engine.shard",
        )
    there = dist.get_rank(), dist.get_world_size()
    if there != (grid.rank, grid.world_size):
        raise UsageError(
            "process grid",
            found=f"rank {grid.rank} of {grid.world_size}",
            expected=f"rank {there[0]} of {there[1]}, as torch.distributed has it",
        )


def _wanted(grid: ProcessGrid, backend: str) -> Iterator[tuple[tuple[int, ...], str]]:
    """Yield the ranks and backend of every process group of the world, in the same order on every rank."""
    for kind in (_CONTROL, backend):
        for rank in range(0, grid.world_size, grid.group_size):
            yield grid.at(rank).group_ranks, kind
    # Not the default group: DDP's sums travel there at the same time, and no order binds them to these.
    yield tuple(range(grid.world_size)), backend
    for axis in range(len(SPATIAL_AXES)):
        for rank in range(grid.world_size):
            yield grid.at(rank).axis_ranks(axis), backend


def lost(subject: str, error: RuntimeError) -> InternalError:
    """Return the error for a peer that is gone or late."""
    reason = " ".join(str(error).split())
    return InternalError(
        subject,
        found=f"no answer ({reason})",
        remedy="see the output of the other ranks: one has stopped, or runs another program",
    )


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
