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
    found: Ints
    """Units that its disk holds already."""


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
        units, codec = blocks.units.count, Codec.parse(cache.codec)
        self._peer_exchange: PeerExchange | None = None
        self._memory: MemoryTier | None = None
        self._disk: DiskTier | None = None
        try:
            host = host_identity()
            greetings = rendezvous.gather(_Greeting(host, job_token(), _digest(blocks.keys(0))), _Greeting)
            sharers = sum(one.host == host for one in greetings)
            token = greetings[0].token
            self._open_tiers(cache, grid.rank, sharers, blocks, job=public_name(token))
            if self._disk is not None and not any(blocks.lasts(one) for one in {0, units // 2, units - 1}):
                self._disk.close()
                self._disk = None
            shelf = Shelf(list(self.tiers.values()))
            is_line = len(greetings) > 1 and grid.groups > 1 and cache.shares and _is_one_data(greetings, grid)
            self.ranks = grid.line_ranks if is_line else (grid.rank if len(greetings) > 1 else 0,)
            address = PeerAddress(host)
            if is_line:
                self._peer_exchange = PeerExchange(
                    cache, grid, shelf, memory=self._memory, disk=self._disk, token=token
                )
                address = self._peer_exchange.address
            shrinkage = blocks.shrinkage(codec) if self.tiers else 0.0
            mine = _Member(address, self._room(sharers), shrinkage, self._found(blocks))
            everyone = rendezvous.gather(mine, _Member)
            members = [everyone[rank] for rank in self.ranks]
            self.group = self.ranks.index(grid.rank) if is_line else 0
            sizes = blocks.footprints(codec, max(one.shrinkage for one in members))
            self.line = Line(sizes, tuple(one.room for one in members))
            self.held = _held(members, self.line)
            self.near = NearSources(self.tiers, self._reachable(members), shelf.notify)
        except BaseException:
            self.close()
            raise

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
    """Return what the line holds at the start: no more of each disk than its owner's part of the room."""
    nothing = np.zeros(0, np.int64)
    disks = []
    for room, one in zip(line.rooms, members, strict=True):
        most = np.searchsorted(np.cumsum(line.sizes[one.found]), room.disk, side="right")
        disks.append(one.found[:most])
    return Held.found([nothing] * len(members), disks)
