"""Cache: where blocks are kept near the ranks that need them, and by which policy."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from voxload.cache.peer.tls import Tls
from voxload.errors import UsageError
from voxload.prefetch import policies
from voxload.prefetch.order.dealing import LOCALITIES
from voxload.units import format_bytes, parse_bytes

CODECS = ("none", "bitshuffle-lz4")
PEERS = ("auto", "node", "tcp", "mpi", "none")
CLAIRVOYANT = "clairvoyant"
_KEEP_NOTHING = ("staging", "none")
"""Policies without tiers."""


@dataclass(frozen=True, kw_only=True)
class Cache:
    """Room for blocks on every node, and what is done with it; immutable.

    All sizes are those of a node, and hard: its ranks share them in equal parts.

    Parameters
    ----------
    memory
        Bytes of each node's memory, such as ``"8GiB"``; they are set aside when the first epoch begins.
    disk
        Folder on each node's own disk; what lies there survives the job and is found by the next one.
    disk_size
        Bytes of it.
    codec
        ``bitshuffle-lz4`` keeps blocks of integers compressed; ``none`` as they are.
    peers
        How blocks come from other ranks. ``auto`` reads those of this node in place, and asks other nodes by one-sided
        MPI where the job runs under it, else by TCP; ``node`` asks no other node; ``tcp`` and ``mpi`` ask every rank
        so; ``none`` leaves each rank to itself.
    interface
        Network interface that peers use; the one that leads to MASTER_ADDR by default.
    tls
        Certificates that encrypt what goes by TCP; in the clear without.
    policy
        Who keeps what: ``clairvoyant``, or one of those to compare with, `voxload.prefetch.policies.NAMES`.
    clairvoyant
        Whether orders beyond the epoch at hand are used; False for benchmarks that forbid to know the seed.
    epochs
        How many epochs there will be, so that nothing is fetched for a further one; None where that is open.
    service
        The node's service, which keeps blocks for all jobs: the path of its socket, or ``auto`` for the one that
        ``voxload serve`` starts by default. It has the memory, so that none is given here.
    locality
        ``batch`` deals the samples of each global batch, those of all sample groups' batches of a step, to groups that
        keep them (SOLAR; Sun et al., VLDB 2022, arXiv 2211.00224). The global batches stay the same sets, and groups
        get as many samples in each step, but **other ones than from torch's loader**; all ranks meet when an epoch
        begins. With one group nothing changes. ``epochs`` chooses **which shuffle each epoch takes**, so that groups
        keep more of what they use next: each one is used once, in other epochs than torch's loader would. It needs
        `epochs`. None, the default, gives each group what torch's loader would.

    Raises
    ------
    UsageError
        When a size is none, a name is unknown, a folder comes without its size, or samples are to be dealt to groups
        that share no blocks, or keep none; when epochs are to be reordered that are not counted, or may not be known.
    """

    memory: int | str = 0
    disk: str | os.PathLike[str] | None = None
    disk_size: int | str = 0
    codec: str = "none"
    peers: str = "auto"
    interface: str | None = None
    tls: Tls | None = None
    policy: str = CLAIRVOYANT
    clairvoyant: bool = True
    epochs: int | None = None
    service: str | os.PathLike[str] | None = None
    locality: str | None = None

    def __post_init__(self) -> None:
        if (self.disk is None) != (self.disk_bytes == 0):
            raise UsageError(
                "cache",
                found=f"disk {os.fspath(self.disk)!r}, disk_size {self.disk_size!r}"
                if self.disk
                else "disk_size alone",
                expected="a folder and its size, or neither",
                remedy="say both, such as disk /nvme/voxload and disk_size 500GiB",
            )
        for name, found, known in (
            ("codec", self.codec, CODECS),
            ("peers", self.peers, PEERS),
            ("policy", self.policy, policies.NAMES),
        ):
            if found not in known:
                raise UsageError(f"cache {name}", found=repr(found), expected=f"one of {list(known)}")
        if self.service is not None and (self.memory_bytes or self.disk is not None or self.codec != "none"):
            raise UsageError(
                "cache",
                found="a service, and memory, disk or codec of its own",
                expected="one of both",
                remedy="leave out memory, disk and codec: the service has its own",
            )
        if self.epochs is not None and self.epochs < 1:
            raise UsageError("cache epochs", found=str(self.epochs), expected="1 or more, or None")
        self._check_locality()
        _ = self.memory_bytes

    def _check_locality(self) -> None:
        """Refuse a locality that is unknown, or without what it is planned by."""
        if self.locality is None:
            return
        if self.locality not in LOCALITIES:
            raise UsageError(
                "cache locality", found=repr(self.locality), expected=f"one of {list(LOCALITIES)}, or None"
            )
        if not self.shares:
            raise UsageError(
                "cache locality",
                found="a service, which keeps blocks for others too" if self.service is not None else 'peers "none"',
                expected="groups that know what each of them keeps",
                remedy='leave it out, or have memory and disk of your own, with policy "lru" where nothing may come '
                "from peers",
            )
        if self.policy in _KEEP_NOTHING or not (self.memory_bytes or self.disk_bytes):
            raise UsageError(
                "cache locality",
                found=f"policy {self.policy!r}, which keeps nothing" if self.policy in _KEEP_NOTHING else "no room",
                expected="blocks that are kept, for samples go to who keeps them",
                remedy="give it memory or a disk, and another policy, or leave locality out",
            )
        if self.locality == "epochs" and (self.epochs is None or not self.clairvoyant):
            raise UsageError(
                "cache locality",
                found="epochs=None" if self.epochs is None else "clairvoyant=False",
                expected="epochs that are known before the first of them begins",
                remedy="say how many there will be, and leave clairvoyant out, or leave locality out",
            )

    @property
    def shares(self) -> bool:
        """Whether ranks give each other blocks."""
        return self.peers != "none" and self.service is None

    @property
    def memory_bytes(self) -> int:
        """Bytes of a node's memory."""
        return parse_bytes(self.memory)

    @property
    def disk_bytes(self) -> int:
        """Bytes of a node's disk."""
        return parse_bytes(self.disk_size)

    def words(self) -> list[str]:
        """Return what is kept where, a few words each."""
        named = {"memory": self.memory_bytes, "disk": self.disk_bytes}
        sizes = [f"{name} {format_bytes(size)}" for name, size in named.items() if size]
        service = [] if self.service is None else [f"service {os.fspath(self.service)}"]
        return [*sizes, *service, self.policy, *([] if self.locality is None else [f"locality {self.locality}"])]

    @property
    def folder(self) -> Path | None:
        """The folder on a node's disk."""
        return None if self.disk is None else Path(self.disk)
