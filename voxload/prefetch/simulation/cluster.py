"""Cluster: the ranks of a line and the things that move their bytes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from voxload.prefetch.events import SourceKind
from voxload.prefetch.line import DISK, MEMORY
from voxload.prefetch.simulation.clock import Action, Clock, Pool, Shared
from voxload.prefetch.simulation.machine import Machine, NodeTier, Shares

TIERS = {MEMORY: SourceKind.MEMORY, DISK: SourceKind.DISK}
"""Kinds of places by the names that plans give them."""


@dataclass(slots=True)
class _Channel:
    """A node's tier."""

    read: Shared
    write: Shared


@dataclass(frozen=True, slots=True)
class PeerTransfer:
    """Where a peer's block comes from, and what happens then."""

    owner: int
    """Whose rank has it."""
    nbytes: int
    done: Action
    missed: Action


class Cluster:
    """Moves bytes in virtual time.

    A transfer is given to everything on its way at the same time, and is done when the slowest of them is: bytes flow,
    they are not stored and forwarded. Each of them shares its rate equally among its transfers. How many fetches a rank
    has under way is its planner's business; of stores, its threads'.
    """

    def __init__(self, machine: Machine, *, groups: int, lines: int) -> None:
        self.clock = Clock()
        self._machine = machine
        shares = self._shares = Shares(machine, lines)
        self._storage = Shared(self.clock, shares.storage)
        self._inbound = [self._flat(machine.network.rate) for _ in range(groups)]
        self._outbound = [self._flat(machine.network.rate) for _ in range(groups)]
        self._decode = [self._decoder() for _ in range(groups)]
        tiers = [(MEMORY, machine.memory)] + ([(DISK, machine.disk)] if machine.disk else [])
        self._stores = [{kind: Pool(tier.threads) for kind, tier in tiers} for _ in range(groups)]
        nodes = shares.node_of(groups - 1) + 1
        self._tiers = [{kind: self._channel(tier) for kind, tier in tiers} for _ in range(nodes)]

    def read(self, group: int, nbytes: int, decoded: int, done: Action) -> None:
        """Read from the storage and decode, chunk by chunk as they come."""
        is_encoded = math.isfinite(self._machine.staging.decode)
        finish = _after_all(3 if is_encoded else 2, done)

        def begin() -> None:
            self._storage.begin(nbytes, group, finish)
            self._inbound[group].begin(nbytes, group, finish)
            if is_encoded:
                self._decode[group].begin(decoded, group, finish)

        self.clock.after(self._machine.storage.latency, begin)

    def own(self, group: int, tier: int, nbytes: int, done: Action) -> None:
        """Read out of a rank's own tier."""
        self._channel_of(group, tier).read.begin(nbytes, group, done)

    def peer(self, group: int, ask: Callable[[Callable[[int | None], None]], None], way: PeerTransfer) -> None:
        """Get a block from another rank's tier.

        Parameters
        ----------
        group
            Whose rank wants it.
        ask
            Calls back with the tier that has the block, or with None where it does not come.
        way
            Where it comes from, and what happens then.
        """

        def answer(tier: int | None) -> None:
            if tier is None:
                way.missed()
                return
            finish = _after_all(3, way.done)
            self._channel_of(way.owner, tier).read.begin(way.nbytes, way.owner, finish)
            self._outbound[way.owner].begin(way.nbytes, way.owner, finish)
            self._inbound[group].begin(way.nbytes, group, finish)

        self.clock.after(self._machine.network.latency, lambda: ask(answer))

    def store(self, group: int, tier: int, nbytes: int, done: Action) -> None:
        """Write into a rank's own tier."""
        channel = self._channel_of(group, tier).write
        self._stores[group][tier].submit(lambda end: channel.begin(nbytes, group, _both(end, done)))

    def _channel_of(self, group: int, tier: int) -> _Channel:
        return self._tiers[self._shares.node_of(group)][tier]

    def _channel(self, tier: NodeTier) -> _Channel:
        read, write, share = tier.read, tier.write, self._shares.tier
        return _Channel(
            Shared(self.clock, lambda transfers, _: share(read, transfers)),
            Shared(self.clock, lambda transfers, _: share(write, transfers)),
        )

    def _flat(self, rate: float) -> Shared:
        return Shared(self.clock, lambda _transfers, _clients: rate)

    def _decoder(self) -> Shared:
        threads, rate = self._machine.staging.threads, self._machine.staging.decode
        return Shared(self.clock, lambda transfers, _: min(transfers, threads) * rate)


def _both(first: Action, second: Action) -> Action:
    def act() -> None:
        first()
        second()

    return act


def _after_all(number: int, done: Action) -> Action:
    """Return what runs `done` when it was called so many times."""
    left = [number]

    def one() -> None:
        left[0] -= 1
        if not left[0]:
            done()

    return one
