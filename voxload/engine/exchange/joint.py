"""Joint: all ranks of a grid in one process and one autograd graph, on any device.

Loopback's ranks each run a backward pass of their own and wait for each other in it. On a GPU that cannot be: all
backward passes share one thread. Here messages are the tensors themselves, graph and all, so that one backward pass,
called once for all ranks' losses, differentiates everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from voxload.engine.exchange.loopback import Loopback, LoopbackRank
from voxload.engine.plan import Part
from voxload.grid import ProcessGrid


class Joint(Loopback):
    """A world of virtual ranks whose results belong to one autograd graph.

    Parameters
    ----------
    grid
        As for Loopback.

    Examples
    --------
    >>> from voxload.grid import ProcessGrid
    >>> world = Joint(ProcessGrid(spatial=(2, 1, 1), world_size=2))
    >>> x = torch.ones(2, requires_grad=True)
    >>> losses = world.run(lambda rank: world.rank(rank).total(x[rank] ** 2, world=False))
    >>> torch.stack(losses).sum().backward()
    >>> x.grad
    tensor([4., 4.])
    """

    def __init__(self, grid: ProcessGrid) -> None:
        super().__init__(grid)
        self._joint = [JointRank(self, grid.at(rank)) for rank in range(grid.world_size)]

    def rank(self, rank: int) -> JointRank:
        """Return the Exchange of virtual `rank`."""
        return self._joint[rank]


class JointRank(LoopbackRank):
    """The Exchange of one virtual rank; used inside ``Joint.run`` only."""

    carries_graph = True

    def gathered(self, x: Tensor, part: Part, fill: float) -> Tensor:
        """Return what `gather` returns, made of the other ranks' own tensors."""
        dim = part.dim
        outgoing = {
            peer: torch.cat([x.narrow(dim, run.source, run.length) for run in runs], dim)
            for peer, runs in part.outgoing
        }
        received = self._swap(part.axis, outgoing, [peer for peer, _ in part.incoming])
        pieces = [(run.target, x.narrow(dim, run.source, run.length)) for run in part.here]
        for peer, runs in part.incoming:
            planes = torch.split(received[peer], [run.length for run in runs], dim)
            pieces += [(run.target, plane) for run, plane in zip(runs, planes, strict=True)]
        shape = list(x.shape)
        for start, stop in part.gaps:
            shape[dim] = stop - start
            pieces.append((start, x.new_full(shape, fill)))
        # An empty piece of the block keeps it in the graph where nothing of it is needed.
        return torch.cat([x.narrow(dim, 0, 0), *(piece for _, piece in sorted(pieces, key=lambda each: each[0]))], dim)

    def total(self, x: Tensor, *, world: bool) -> Tensor:
        """Return what `all_sum` returns."""
        return torch.stack(self.met(x, world=world)).sum(0)

    def _swap(self, axis: int, outgoing: Mapping[int, Tensor], peers: Sequence[int]) -> dict[int, Tensor]:
        """Post tensors as they are, and return those of `peers`."""
        ranks, own = self._grid.axis_ranks(axis), self._grid.rank
        for place, tensor in outgoing.items():
            self._world.mail[own, ranks[place]].append(tensor)
        received = {}
        for place in peers:
            box = self._world.mail[ranks[place], own]
            subject = f"rank {own}'s message from {ranks[place]}"
            self._world.wait_for(own, lambda box=box: bool(box), subject)  # type: ignore[misc]
            received[place] = box.popleft()
        return received
