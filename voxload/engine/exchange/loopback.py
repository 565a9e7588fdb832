"""Loopback: all ranks of a grid as threads of one process, for tests and for looking into a model."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from threading import Condition, Thread
from typing import Any, TypeVar

import torch
from torch import Tensor

from voxload.engine.exchange.registry import registered
from voxload.errors import InternalError, UsageError
from voxload.grid import ProcessGrid

T = TypeVar("T")

_NUMBERS, _GROUP, _WORLD = "numbers", "group", "world"
"""Kinds of meetings; each is counted by itself."""


class Loopback:
    """A world of virtual ranks, one thread each, of which exactly one runs at any time.

    A rank runs until it waits for a message; then another goes on. So results repeat, torch's global state
    (random numbers, tracing) is never touched by two ranks at once, and a small machine is not overloaded.
    Tensors must live on the host: on a GPU all backward passes share one thread, which must not wait.

    Parameters
    ----------
    grid
        The grid, seen from any of its ranks.
    timeout
        Seconds that a rank waits for its peers.

    Examples
    --------
    >>> from voxload.grid import ProcessGrid
    >>> world = Loopback(ProcessGrid(spatial=(2, 1, 1), world_size=2))
    >>> world.run(lambda rank: world.rank(rank).share([rank * 10]))
    [[(0,), (10,)], [(0,), (10,)]]
    """

    def __init__(self, grid: ProcessGrid, *, timeout: float = 60.0) -> None:
        self.grid = grid
        self.timeout = timeout
        self.turn = Condition()
        self.mail: defaultdict[tuple[int, int], deque[Tensor]] = defaultdict(deque)
        self.rounds: defaultdict[tuple[str, int, int], dict[int, Any]] = defaultdict(dict)
        self.failed: int | None = None
        self._seats = [LoopbackRank(self, grid.at(rank)) for rank in range(grid.world_size)]

    def rank(self, rank: int) -> LoopbackRank:
        """Return the Exchange of virtual `rank`."""
        return self._seats[rank]

    def run(self, work: Callable[[int], T]) -> list[T]:
        """Call ``work(rank)`` for every rank, each in its thread, and return the results in rank order.

        Raises what the first rank to fail raised, after all have ended.
        """
        results: dict[int, T] = {}
        errors: list[BaseException] = []

        def live(rank: int) -> None:
            """Be one virtual rank, when it is its turn."""
            with self.turn:
                try:
                    results[rank] = work(rank)
                except BaseException as error:  # noqa: BLE001 - carried over to the calling thread, whatever it is
                    errors.append(error)
                    self.failed = rank if self.failed is None else self.failed
                self.turn.notify_all()

        threads = [Thread(target=live, args=(rank,), name=f"rank {rank}") for rank in range(self.grid.world_size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return [results[rank] for rank in range(self.grid.world_size)]

    def wait_for(self, arrived: Callable[[], bool], subject: str) -> None:
        """Let other ranks run until `arrived`; raises InternalError when a rank failed or time is up."""
        if arrived():
            return
        # Random numbers are the process's: each rank goes on with those that it had, as processes would.
        state = torch.get_rng_state()
        ended = self.turn.wait_for(lambda: arrived() or self.failed is not None, self.timeout)
        torch.set_rng_state(state)
        if arrived():
            return
        found = f"rank {self.failed} failed" if ended else f"no answer within {self.timeout:g} s"
        raise InternalError(subject, found=found)


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
        self._world.turn.notify_all()
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
        self._world.turn.notify_all()
        self._world.wait_for(lambda: len(table) == len(ranks), f"rank {self._grid.rank}'s meeting")
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
            self._world.wait_for(lambda box=box: bool(box), f"rank {self._rank}'s message from {source}")  # type: ignore[misc]
            tensor.copy_(box.popleft())
        self._incoming = {}
