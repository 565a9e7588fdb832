"""SharedTiers: this rank's tiers, what it lends from them, and the way to its peers'."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from voxload.cache.codec import Codec
from voxload.cache.disk.tier import DiskTier
from voxload.cache.memory.tier import MemoryTier
from voxload.cache.peer.address import PeerAddress, host_identity, job_token, public_name
from voxload.cache.peer.shelf import Shelf
from voxload.cache.protocol import BlockKey, Peers, Tier
from voxload.grid import ProcessGrid
from voxload.loader.cache import Cache
from voxload.loader.caching.blocks import DatasetBlocks
from voxload.loader.caching.peers import PeerExchange
from voxload.loader.collectives import Rendezvous
from voxload.prefetch.execution.resources import NearSources
from voxload.prefetch.line import DISK, MEMORY, Held, Ints, Line, Room

_INVENTORY_THREADS = 16
"""Threads that look at what is stored: they wait for file systems and storages, not for a core."""


@dataclass(frozen=True, slots=True)
class _Greeting:
    """What a rank tells the others first."""

    host: str
    token: bytes
    first: bytes
    """Digest of the keys of its first blocks."""


@dataclass(frozen=True, slots=True)
class _Member:
    """What a rank tells the others once its tiers stand."""

    address: PeerAddress
    room: Room
    shrinkage: float
    """What part of what can be packed is stored, as far as it can tell."""
    kept: Ints
    """Units that its memory holds already."""
    found: Ints
    """Units that its disk holds already, and its memory does not."""


class SharedTiers:
    """What lies nearer to a rank than the storage; made by all ranks together, closed by each.

    Parameters
    ----------
    cache
        What the user asked for.
    grid
        The ranks.
    rendezvous
        How they talk.
    blocks
        What is kept.

    Raises
    ------
    UsageError
        When the tiers do not fit the node, or peers cannot be reached as asked.
    """

    def __init__(self, cache: Cache, grid: ProcessGrid, rendezvous: Rendezvous, blocks: DatasetBlocks) -> None:
        units = blocks.units.count
        self._codec, self._grid, self._rendezvous = Codec.parse(cache.codec), grid, rendezvous
        self._peers: Peers | None = None
        self._peer_exchange: PeerExchange | None = None
        self._memory: MemoryTier | None = None
        self._disk: DiskTier | None = None
        try:
            host = host_identity()
            greetings = rendezvous.gather(_Greeting(host, job_token(), _digest(blocks.keys(0))), _Greeting)
            self._sharers = sum(one.host == host for one in greetings)
            token = greetings[0].token
            self._open_tiers(cache, grid.rank, self._sharers, blocks, job=public_name(token))
            if self._disk is not None and not any(blocks.lasts(one) for one in {0, units // 2, units - 1}):
                self._disk.close()
                self._disk = None
            self._shelf = Shelf(list(self.tiers.values()))
            is_line = len(greetings) > 1 and grid.groups > 1 and cache.shares and _is_one_data(greetings, grid)
            self.ranks = grid.line_ranks if is_line else (grid.rank if len(greetings) > 1 else 0,)
            self._address = PeerAddress(host)
            if is_line:
                self._peer_exchange = PeerExchange(
                    cache, grid, self._shelf, memory=self._memory, disk=self._disk, token=token
                )
                self._address = self._peer_exchange.address
            self.group = self.ranks.index(grid.rank) if is_line else 0
            members = self._meet(blocks, kept=np.zeros(0, np.int64))
            self._peers = self._reachable(members)
            self.near = NearSources(self.tiers, self._peers, self._shelf.notify)
        except BaseException:
            self.close()
            raise

    def renew(self, blocks: DatasetBlocks, known: Ints) -> None:
        """Keep further units besides those that are kept; called by all ranks, while nothing is fetched or stored.

        Parameters
        ----------
        blocks
            What is kept from now on: what was, and what is new.
        known
            Units whose keys were learnt before.
        """
        memory = self._memory
        there = [unit for unit in known.tolist() if memory is not None and all(map(memory.holds, blocks.keys(unit)))]
        members = self._meet(blocks, kept=np.array(sorted(there), np.int64))
        mine = members[self.group].kept
        if memory is not None:  # what a plan does not know of must not take its room
            for unit in set(mine.tolist()) - set(self._in_memory(self.group)):
                for key in blocks.keys(unit):
                    memory.drop(key)

    def _in_memory(self, group: int) -> list[int]:
        """Return the units that plans take a group's memory to hold."""
        chosen = (self.held.group == group) & (self.held.tier == MEMORY)
        found: list[int] = self.held.sample[chosen].tolist()
        return found

    def _meet(self, blocks: DatasetBlocks, *, kept: Ints) -> list[_Member]:
        """Tell the other ranks what there is, and learn what the line holds; return its members."""
        shrinkage = blocks.shrinkage(self._codec) if self.tiers else 0.0
        found = self._found(blocks)
        mine = _Member(self._address, self._room(self._sharers), shrinkage, kept, np.setdiff1d(found, kept))
        everyone = self._rendezvous.gather(mine, _Member)
        members = [everyone[rank] for rank in self.ranks]
        sizes = blocks.footprints(self._codec, max(one.shrinkage for one in members))
        self.line = Line(sizes, tuple(one.room for one in members))
        """Who keeps what is kept, and the room of each."""
        self.held = _held(members, self.line)
        """What is there at the start."""
        return members

    @property
    def tiers(self) -> dict[int, Tier]:
        """The tiers by their names in plans."""
        found: dict[int, Tier | None] = {MEMORY: self._memory, DISK: self._disk}
        return {name: tier for name, tier in found.items() if tier is not None}

    def holds(self, tier: int, keys: Sequence[BlockKey]) -> bool:
        """Tell whether a tier holds all of a sample's blocks."""
        place = self.tiers.get(tier)
        return place is not None and all(place.holds(key) for key in keys)

    def close(self) -> None:
        """Stop lending and give all room back; what lies on disk stays."""
        for part in (self._peer_exchange, self._memory, self._disk):
            if part is not None:
                part.close()
        self._peer_exchange = self._memory = self._disk = None

    def _open_tiers(self, cache: Cache, rank: int, sharers: int, blocks: DatasetBlocks, *, job: str) -> None:
        if cache.memory_bytes:
            room = cache.memory_bytes // sharers
            self._memory = MemoryTier(room, job=job, rank=rank, codec=cache.codec, blocks=blocks.most_arrays(room))
        if cache.folder is not None:
            self._disk = DiskTier(cache.folder, cache.disk_bytes, codec=cache.codec)

    def _room(self, sharers: int) -> Room:
        memory = self._memory.room if self._memory is not None else 0
        return Room(memory, self._disk.room // sharers if self._disk is not None else 0)

    def _found(self, blocks: DatasetBlocks) -> Ints:
        """Return the units that an earlier job left on this node's disk."""
        disk = self._disk
        if disk is None or disk.used <= disk.capacity - disk.room:
            return np.zeros(0, np.int64)
        with ThreadPoolExecutor(_INVENTORY_THREADS) as pool:
            keys = list(pool.map(blocks.keys, range(blocks.units.count)))
        there = iter(disk.inventory([key for ones in keys for key in ones]))
        # A list each time: all of a unit's fields are asked for, whatever the first says.
        return np.array([unit for unit, ones in enumerate(keys) if all([next(there) for _ in ones])], np.int64)  # noqa: C419

    def _reachable(self, members: Sequence[_Member]) -> Peers | None:
        if self._peer_exchange is None:
            return None
        return self._peer_exchange.peers({group: one.address for group, one in enumerate(members)})


def _digest(keys: Sequence[BlockKey]) -> bytes:
    return b"".join(key.digest for key in keys)


def _is_one_data(greetings: Sequence[_Greeting], grid: ProcessGrid) -> bool:
    """Tell whether all ranks that could share blocks see the same data; every rank comes to the same result."""
    lines = (greetings[first :: grid.group_size] for first in range(grid.group_size))
    if all(len({one.first for one in line}) == 1 for line in lines):
        return True
    warnings.warn(
        "the nodes have copies of the data that differ in their inodes or times: their ranks share no blocks, and each "
        "keeps its own; put the data on a file system that the nodes share",
        RuntimeWarning,
        stacklevel=2,
    )
    return False


def _held(members: Sequence[_Member], line: Line) -> Held:
    """Return what the line holds at the start: no more of each memory and disk than its owner's part of the room."""
    memories, disks = [], []
    for room, one in zip(line.rooms, members, strict=True):
        memories.append(_fitting(one.kept, line, room.memory))
        disks.append(_fitting(one.found, line, room.disk))
    return Held.found(memories, disks)


def _fitting(units: Ints, line: Line, room: int) -> Ints:
    """Return the first units, as many as there is room for."""
    return units[: np.searchsorted(np.cumsum(line.sizes[units]), room, side="right")]
