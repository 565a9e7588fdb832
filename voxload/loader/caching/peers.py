"""PeerExchange: how this rank's blocks come to the other ranks of its line, and theirs to it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec

from voxload.cache.disk.tier import DiskTier
from voxload.cache.memory.tier import MemoryTier
from voxload.cache.peer.address import (
    LOOPBACK,
    PeerAddress,
    far_locations,
    host_identity,
    interface_address,
    route_address,
)
from voxload.cache.peer.client import TcpPeers
from voxload.cache.peer.mpi import MpiPeers, split_world
from voxload.cache.peer.node import LinePeers, NodePeers, near_arenas
from voxload.cache.peer.server import PeerServer
from voxload.cache.peer.shelf import Shelf
from voxload.cache.protocol import Peers
from voxload.grid import ProcessGrid
from voxload.loader.cache import Cache

_MPI_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
"""What MPI launchers set; torchrun, which may run under one, sets RANK too and is no MPI job."""


def transport_of(cache: Cache) -> str:
    """Return what carries blocks between nodes: ``tcp``, ``mpi``, or ``none``."""
    if cache.peers == "auto":
        is_mpi = any(name in os.environ for name in _MPI_RANKS) and "RANK" not in os.environ
        return "mpi" if is_mpi and find_spec("mpi4py") else "tcp"
    return "none" if cache.peers == "node" else cache.peers


class PeerExchange:
    """One rank's end of the exchange; made by all ranks of a job, before they tell each other their addresses.

    Parameters
    ----------
    cache
        What the user asked for.
    grid
        The ranks.
    shelf
        What is lent.
    memory, disk
        This rank's tiers; None where it has none.
    token
        The job's.
    """

    def __init__(
        self,
        cache: Cache,
        grid: ProcessGrid,
        shelf: Shelf,
        *,
        memory: MemoryTier | None,
        disk: DiskTier | None,
        token: bytes,
    ) -> None:
        self._cache = cache
        self._grid = grid
        self._memory = memory
        self._disk = disk
        self._token = token
        self._transport = transport_of(cache)
        self._peers: Peers | None = None
        self._server: PeerServer | None = None
        if self._transport == "tcp":
            host = interface_address(cache.interface) if cache.interface else route_address()
            self._server = PeerServer(shelf, token=token, host=host or LOOPBACK, tls=cache.tls)

    @property
    def address(self) -> PeerAddress:
        """Where others find this rank's blocks."""
        return PeerAddress(
            host_identity(),
            arena=self._memory.path if self._memory else "",
            disk=os.fspath(self._cache.folder or "") if self._disk else "",
            location=self._server.location if self._server else "",
        )

    def peers(self, addresses: Mapping[int, PeerAddress]) -> Peers:
        """Return the way to the blocks of all groups of the line; they are closed with this."""
        others = {group: address for group, address in addresses.items() if group != self._grid.group}
        host = host_identity()
        near = NodePeers({})
        if self._cache.peers in {"auto", "node"}:
            disks = {} if self._disk is None else dict.fromkeys(others, self._disk)
            near = NodePeers(near_arenas(others, host), disks)
        self._peers = LinePeers(near, self._far(others, host, near.groups))
        return self._peers

    def _far(self, others: Mapping[int, PeerAddress], host: str, near: frozenset[int]) -> Peers | None:
        """Return the transport, for groups that are not read in place."""
        if self._transport == "tcp":
            here = {group: one.location for group, one in others.items() if one.host == host and group not in near}
            locations = far_locations(others, host) | here
            return TcpPeers(locations, token=self._token, tls=self._cache.tls) if locations else None
        if self._transport == "mpi":
            line = split_world(self._grid.rank % self._grid.group_size, self._grid.group)
            return MpiPeers(line, None if self._memory is None else self._memory.memory)
        return None

    def close(self) -> None:
        """Stop asking and lending."""
        if self._peers is not None:
            self._peers.close()
        if self._server is not None:
            self._server.close()
