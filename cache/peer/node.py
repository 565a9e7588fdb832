"""NodePeers and LinePeers: blocks of ranks of this node read in place, those of other nodes by a transport."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, closing

from voxload.cache.memory.attached import AttachedMemory
from voxload.cache.peer.address import PeerAddress
from voxload.cache.peer.polling import poll_for
from voxload.cache.peer.shelf import Lender
from voxload.cache.protocol import Answer, BlockKey, Peers
from voxload.cache.warnonce import WarnOnce
from voxload.errors import UsageError, VoxloadError
from voxload.readers.protocol import Volume


class NodePeers:
    """Reads the tiers of other ranks of this node, without asking them; a `Peers`.

    What a rank that was killed had in memory can be read until the last process that reads it ends.

    Parameters
    ----------
    arenas
        Files of memory tiers, by sample group. One that cannot be attached is warned of, and is not in `groups`.
    disks
        Disk tiers of the ranks, by sample group: mostly this rank's own tier, which has the same folder. They are not
        closed with this.
    """

    def __init__(self, arenas: Mapping[int, str], disks: Mapping[int, Lender] | None = None) -> None:
        self._arenas: dict[int, AttachedMemory] = {}
        self._disks = dict(disks or {})
        trouble = WarnOnce("peers of this node")
        for group, path in arenas.items():
            try:
                self._arenas[group] = AttachedMemory(path)
            except VoxloadError as error:
                trouble.tell("attach", str(error), remedy="give the ranks of a node one /dev/shm and one user")

    @property
    def groups(self) -> frozenset[int]:
        """Groups whose memory can be read here."""
        return frozenset(self._arenas)

    def get_into(self, group: int, key: BlockKey, out: Volume, *, wait: float) -> Answer:
        """Fill `out` with a block out of a group's tiers; see `Peers`. Raises UsageError for any other group."""
        if group not in self._arenas:
            raise UsageError("group", found=str(group), expected=f"one of {sorted(self._arenas)}")
        return poll_for(lambda: self._look(group, key, out), wait)

    def _look(self, group: int, key: BlockKey, out: Volume) -> Answer:
        answer = self._arenas[group].fetch(key, out)
        disk = self._disks.get(group)
        if answer is Answer.GOT or disk is None or not disk.holds(key):
            return answer
        return Answer.GOT if disk.get_into(key, out) else Answer.WRONG

    def close(self) -> None:
        """Release the memory of the other ranks."""
        with ExitStack() as stack:
            for arena in self._arenas.values():
                stack.enter_context(closing(arena))
        self._arenas.clear()


class LinePeers:
    """Asks ranks of this node through their memory and all others through a transport; a `Peers`.

    Parameters
    ----------
    near
        Ranks of this node; closed with this.
    far
        The transport, which also serves groups of this node that `near` cannot read; None without one: then these are
        LOST. Closed with this.
    """

    def __init__(self, near: NodePeers, far: Peers | None) -> None:
        self._near = near
        self._far = far

    def get_into(self, group: int, key: BlockKey, out: Volume, *, wait: float) -> Answer:
        """Fill `out` with a block out of a group's tiers; see `Peers`."""
        if group in self._near.groups:
            return self._near.get_into(group, key, out, wait=wait)
        return Answer.LOST if self._far is None else self._far.get_into(group, key, out, wait=wait)

    def close(self) -> None:
        """Close both."""
        with ExitStack() as stack:
            stack.enter_context(closing(self._near))
            if self._far is not None:
                stack.enter_context(closing(self._far))


def near_arenas(addresses: Mapping[int, PeerAddress], host: str) -> dict[int, str]:
    """Return the files of the memory tiers of one node's ranks, by group, as `NodePeers` takes them."""
    return {group: address.arena for group, address in addresses.items() if address.host == host and address.arena}
