"""Exchanges within one process: between virtual ranks that are threads of it, or of messages that never travel.

Joint: all ranks of a grid in one process and one autograd graph, on any device. Loopback's ranks each run a backward
pass of their own and wait for each other in it. On a GPU that cannot be: all backward passes share one thread. Here
messages are the tensors themselves, graph and all, so that one backward pass, called once for all ranks' losses,
differentiates everything.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from threading import Condition, Thread
from typing import Any, TypeVar

import torch
from torch import Tensor

from voxload.engine.arithmetic.axis_plan import Part
from voxload.engine.exchange.protocol import registered
from voxload.errors import InternalError, UsageError
from voxload.grid import ProcessGrid

T = TypeVar("T")

_NUMBERS, _GROUP, _WORLD = "numbers", "group", "world"
"""Kinds of meetings; each is counted by itself."""


class Loopback:
    """A world of virtual ranks, one thread each, of which exactly one runs at any time.

    A rank runs until it waits for a message; then the next one goes on, in the order of the ranks, that has what it
    waits for. So results, errors and their order repeat, torch's global state (random numbers, tracing) is never
    touched by two ranks at once, and a small machine is not overloaded. Ranks that wait for each other are told so.
    Tensors must live on the host: on a GPU all backward passes share one thread, which must not wait.

    Parameters
    ----------
    grid
        The grid, seen from any of its ranks.

    Examples
    --------
    >>> from voxload.grid import ProcessGrid
    >>> world = Loopback(ProcessGrid(spatial=(2, 1, 1), world_size=2))
    >>> world.run(lambda rank: world.rank(rank).share([rank * 10]))
    [[(0,), (10,)], [(0,), (10,)]]
    """

    def __init__(self, grid: ProcessGrid) -> None:
        self.grid = grid
        self.mail: defaultdict[tuple[int, int], deque[Tensor]] = defaultdict(deque)
        self.rounds: defaultdict[tuple[str, int, int], dict[int, Any]] = defaultdict(dict)
        self._exchanges = [LoopbackRank(self, grid.at(rank)) for rank in range(grid.world_size)]
        self._turn = Condition()
        self._running: int | None = None
        self._waiting: dict[int, Callable[[], bool]] = {}
        """What each rank waits for that does not run."""
        self._failure = ""
        """Why nobody may wait any longer."""

    def rank(self, rank: int) -> LoopbackRank:
        """Return the Exchange of virtual `rank`."""
        return self._exchanges[rank]

    def run(self, work: Callable[[int], T]) -> list[T]:
        """Call ``work(rank)`` for every rank, each in its thread, and return the results in rank order.

        Raises what the first rank to fail raised, after all have ended; then the world is done with.
        """
        results: dict[int, T] = {}
        errors: list[BaseException] = []

        def live(rank: int) -> None:
            """Be one virtual rank, when it is its turn."""
            with self._turn:
                self._turn.wait_for(lambda: self._running == rank)
                try:
                    results[rank] = work(rank)
                except BaseException as error:  # noqa: BLE001 - carried over to the calling thread, whatever it is
                    errors.append(error)
                    self._failure = self._failure or f"rank {rank} failed"
                self._pass_on(rank)

        self._waiting = dict.fromkeys(range(self.grid.world_size), lambda: True)
        threads = [Thread(target=live, args=(rank,), name=f"rank {rank}") for rank in range(self.grid.world_size)]
        for thread in threads:
            thread.start()
        with self._turn:
            self._pass_on(-1)
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return [results[rank] for rank in range(self.grid.world_size)]

    def wait_for(self, rank: int, arrived: Callable[[], bool], subject: str) -> None:
        """Let other ranks run until what `rank` waits for has `arrived`.

        Raises InternalError when a rank failed, and when all that have not ended wait for each other.
        """
        if arrived():
            return
        # Random numbers are the process's: each rank goes on with those that it had, as processes would.
        state = torch.get_rng_state()
        self._waiting[rank] = arrived
        self._pass_on(rank)
        self._turn.wait_for(lambda: self._running == rank)
        torch.set_rng_state(state)
        if not arrived():
            raise InternalError(subject, found=self._failure)

    def _pass_on(self, rank: int) -> None:
        """Make the next rank after `rank` run that can; where none can but some wait, one of them that tells so."""
        world = self.grid.world_size
        order = [each % world for each in range(rank + 1, rank + 1 + world) if each % world in self._waiting]
        able = [each for each in order if self._failure or self._waiting[each]()]
        if order and not able:
            self._failure = "no rank that could send it: all wait for each other, or have ended"
            able = order
        self._running = able[0] if able else None
        if self._running is not None:
            del self._waiting[self._running]
        self._turn.notify_all()


class LoopbackRank:
    """The Exchange of one virtual rank; used inside ``Loopback.run`` only."""

    carries_graph = False

    def __init__(self, world: Loopback, grid: ProcessGrid) -> None:
        self._world = world
        self._grid = grid
        self.key = registered(self)
        self._counts = {_NUMBERS: 0, _GROUP: 0, _WORLD: 0}

    def __deepcopy__(self, memo: dict[int, object]) -> LoopbackRank:
        return self

    def start(self, axis: int, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> PendingLoopback:
        """Post `outgoing` and note what to wait for; see Exchange."""
        ranks = self._grid.axis_ranks(axis)
        for place, tensor in outgoing.items():
            if tensor.device.type != "cpu":
                raise UsageError("Loopback", found=f"a tensor on {tensor.device}", expected="tensors on the host")
            # A copy: the sender may go on and change its tensor before the receiver's turn comes.
            self._world.mail[self._grid.rank, ranks[place]].append(tensor.clone())
        return PendingLoopback(
            self._world, self._grid.rank, {ranks[place]: tensor for place, tensor in incoming.items()}
        )

    def reduce(self, tensor: Tensor, *, world: bool) -> None:
        """Sum over the ranks, in their order; see Exchange."""
        tensor.copy_(torch.stack(self.met(tensor.clone(), world=world)).sum(0))

    def met(self, tensor: Tensor, *, world: bool) -> list[Tensor]:
        """Return the tensors that all ranks of the group, or of the world, bring to this meeting, in their order."""
        ranks = range(self._grid.world_size) if world else self._grid.group_ranks
        return self._meet(_WORLD if world else _GROUP, tensor, ranks)

    def share(self, numbers: Sequence[int]) -> list[tuple[int, ...]]:
        """Return the numbers of every rank of the sample group; see Exchange."""
        return self._meet(_NUMBERS, tuple(numbers), self._grid.group_ranks)

    def _meet(self, kind: str, own: T, ranks: Sequence[int]) -> list[T]:
        """Return what each of `ranks` brought to this meeting: the one of their kind with the same number."""
        key = kind, ranks[0], self._counts[kind]
        table: dict[int, T] = self._world.rounds[key]
        self._counts[kind] += 1
        table[self._grid.rank] = own
        if len(table) == len(ranks):
            del self._world.rounds[key]  # complete; the ranks that wait for it hold the table itself
        own_rank = self._grid.rank
        self._world.wait_for(own_rank, lambda: len(table) == len(ranks), f"rank {own_rank}'s meeting")
        return [table[rank] for rank in ranks]


class PendingLoopback:
    """Messages that a virtual rank waits for."""

    def __init__(self, world: Loopback, rank: int, incoming: dict[int, Tensor]) -> None:
        self._world = world
        self._rank = rank
        self._incoming = incoming

    def wait(self) -> None:
        """Copy each message into its tensor as it arrives."""
        for source, tensor in self._incoming.items():
            box = self._world.mail[source, self._rank]
            subject = f"rank {self._rank}'s message from {source}"
            self._world.wait_for(self._rank, lambda box=box: bool(box), subject)  # type: ignore[misc]
            tensor.copy_(box.popleft())
        self._incoming = {}


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


class NoExchange:
    """An Exchange whose messages never travel: halos hold zeros, sums are the rank's own.

    Results are wrong by design. It measures the ceiling against which the cost of a real exchange is told, and needs
    no other process.

    Parameters
    ----------
    grid
        This rank's view of the grid.
    """

    carries_graph = False

    def __init__(self, grid: ProcessGrid) -> None:
        self._size = grid.group_size
        self.key = registered(self)

    def __deepcopy__(self, memo: dict[int, object]) -> NoExchange:
        return self

    def start(self, axis: int, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> NothingPending:  # noqa: ARG002 - see Exchange
        """Fill `incoming` with zeros: what memory held before could be no number at all."""
        for tensor in incoming.values():
            tensor.zero_()
        return NothingPending()

    def reduce(self, tensor: Tensor, *, world: bool) -> None:
        """Leave `tensor` as it is."""

    def share(self, numbers: Sequence[int]) -> list[tuple[int, ...]]:
        """Return this rank's numbers for every rank: a cut must be given by the whole's shape, not by blocks."""
        return [tuple(numbers)] * self._size


class NothingPending:
    """Messages that were never sent."""

    def wait(self) -> None:
        """Return at once."""
