"""Wire: what an optimiser's ranks send each other on the process grid.

Ranks of a sample group are its places. What they have alike is cut into as many shards as there are places. Each talks
to its like in the other groups about one shard alone, and then tells it the others of its own group: between groups,
where links are slow, nothing travels twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

from voxload.errors import UsageError
from voxload.grid import ProcessGrid


@dataclass(frozen=True, slots=True)
class Coming:
    """A tensor that is on its way."""

    tensor: Tensor
    work: Any
    """torch's; None where it is there."""

    def wait(self) -> Tensor:
        """Return it, once it is there."""
        if self.work is not None:
            self.work.wait()
        return self.tensor


class Wire:
    """Collectives over a grid; all ranks make one, and call the same methods in the same order. For one thread.

    Parameters
    ----------
    grid
        This rank's view of the grid.
    kind
        Type of the devices that tensors are on: ``"cpu"`` or ``"cuda"``.

    Raises
    ------
    UsageError
        When torch.distributed does not run, or has another world than the grid.
    """

    def __init__(self, grid: ProcessGrid, kind: str) -> None:
        self.groups, self.places = grid.groups, grid.group_size
        self.group, self.place = grid.group, grid.rank % grid.group_size
        self.bytes_across = 0
        """Bytes that this rank has sent to other groups."""
        if grid.world_size == 1:
            return
        world = dist.get_world_size() if dist.is_initialized() else 0
        if world != grid.world_size or dist.get_rank() != grid.rank:
            raise UsageError(
                "Lion on a grid of several ranks",
                found="torch.distributed is not initialised" if not world else f"a world of {world} ranks",
                expected=f"rank {grid.rank} of {grid.world_size}",
                remedy="call torch.distributed.init_process_group first, and give Lion this rank's grid",
            )
        mesh = init_device_mesh(kind, (grid.groups, grid.group_size), mesh_dim_names=("group", "place"))
        self._line, self._group = mesh.get_group("group"), mesh.get_group("place")

    def added_in_group(self, flat: Tensor) -> Coming:
        """Add up a tensor over the ranks of the sample group, in place."""
        return self._added(flat, None if self.places == 1 else self._group)

    def added_in_world(self, flat: Tensor) -> Coming:
        """Add up a tensor over all ranks, in place."""
        if self.places * self.groups == 1:
            return Coming(flat, None)
        self.bytes_across += 2 * (self.groups - 1) * flat.nbytes // (self.groups * self.places)
        return self._added(flat, dist.group.WORLD)

    def is_anywhere(self, flag: Tensor) -> bool:
        """Tell whether a number is more than 0 on any rank of the world; waits for the device."""
        flag = flag.detach().reshape(1).clone()
        if self.places * self.groups > 1:
            dist.all_reduce(flag, dist.ReduceOp.MAX)
            self.bytes_across += flag.nbytes
        return bool(flag.item() > 0)

    def dealt(self, rows: Tensor) -> Coming:
        """Send each group its row of ``(groups, n)``; return those that came from each."""
        if self.groups == 1:
            return Coming(rows, None)
        came = torch.empty_like(rows)
        self.bytes_across += rows[1:].nbytes
        return Coming(came, dist.all_to_all_single(came, rows, group=self._line, async_op=True))

    def gathered_across(self, row: Tensor) -> Coming:
        """Return the rows ``(groups, n)`` that all groups have here."""
        if self.groups == 1:
            return Coming(row[None], None)
        rows = row.new_empty(self.groups, *row.shape)
        self.bytes_across += (self.groups - 1) * row.nbytes
        return Coming(rows, dist.all_gather_single(rows, row[None], group=self._line, async_op=True))

    def gathered_in_group(self, rows: Tensor) -> Tensor:
        """Return what all places of the group have, ``(places, ...)``."""
        if self.places == 1:
            return rows[None]
        found = rows.new_empty(self.places * len(rows), *rows.shape[1:])
        dist.all_gather_single(found, rows.contiguous(), group=self._group)
        return found.view(self.places, *rows.shape)

    def mean_across(self, flat: Tensor) -> Tensor:
        """Return the mean over all groups of a vector that the ranks of a group have alike."""
        if self.groups == 1:
            return flat
        length = -(-len(flat) // self.places)
        shards = torch.nn.functional.pad(flat, (0, length * self.places - len(flat))).view(self.places, length)
        own = shards[self.place].clone()
        dist.all_reduce(own, group=self._line)
        self.bytes_across += 2 * (self.groups - 1) * own.nbytes // self.groups
        return self.gathered_in_group(own.div_(self.groups)).view(-1)[: len(flat)]

    def gathered_at_first(self, tensor: Tensor) -> Tensor | None:
        """Return the tensors of all groups ``(groups, ...)`` on rank 0, which the ranks of a group have alike."""
        if self.groups == 1:
            return tensor[None]
        if self.place != 0:
            return None
        is_first = dist.get_rank() == 0
        rows = [torch.empty_like(tensor) for _ in range(self.groups)] if is_first else None
        dist.gather(tensor.contiguous(), rows, dst=0, group=self._line)
        return None if rows is None else torch.stack(rows)

    def _added(self, flat: Tensor, group: Any) -> Coming:
        return Coming(flat, None if group is None else dist.all_reduce(flat, group=group, async_op=True))
