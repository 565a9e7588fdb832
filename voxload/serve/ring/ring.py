"""Ring: services of several nodes of one user's, of which each reads the blocks whose home it is, for all of them.

Rules of this file:

1. A block is read from the storage by its home, once for the ring. Whose home is another member asks that for it.
2. A home that does not answer, or sees another ring, is done without: the block is read from the storage.
3. Nobody passes a request on: where two members disagree about a home, none waits for the other.
4. Members show each other a token before anything else is said, and certificates where TLS is asked for.
"""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from voxload.cache.peer.client import TcpPeers
from voxload.cache.peer.server import PeerServer
from voxload.cache.peer.shelf import Shelf
from voxload.cache.peer.tls import Tls
from voxload.cache.protocol import Answer, BlockKey
from voxload.cache.warnonce import WarnOnce
from voxload.errors import DataError, VoxloadError
from voxload.readers.protocol import Volume
from voxload.serve.client import ServiceClient
from voxload.serve.protocol.blocktable import ServedBlock, parsed, unit_of
from voxload.serve.ring.hashing import HashRing
from voxload.serve.ring.members import EVERY, Meeting, Member, Roll, now
from voxload.serve.ring.offload import Offload

_LONGEST_LINE = 2**15
"""Bytes of what a member says of a block."""
_REMEMBERED = 2**16
"""Blocks that a home remembers by number."""


@dataclass(frozen=True, slots=True)
class RingOptions:
    """How a service is one of several."""

    host: str
    """Address of this node that others reach."""
    token: bytes
    """That all members know."""
    tls: Tls | None = None
    reads: bool = True
    """Whether this reads for others; where not, it has others read for it."""
    share: float | None = None
    """Of what it has others read, where it does not read for them; None for one that follows its jobs' stall."""


@dataclass(frozen=True, slots=True)
class _View:
    """The ring as it is seen now."""

    ring: HashRing
    peers: TcpPeers
    groups: dict[str, int]
    """Members' numbers to `peers`."""
    members: int
    """How many are there, those that read for nobody included."""


class Ring:
    """A service's part of a ring; see `Elsewhere`. Safe to use from many threads at once; one owner closes it.

    Parameters
    ----------
    meeting
        By what members know of each other; closed with this, as is `home`.
    home
        Gives blocks whose home this is.
    options
        How.
    stall
        Returns the seconds that jobs have waited so far, and how many there are.

    Raises
    ------
    UsageError, StorageError
        As PeerServer raises.
    """

    wants_files = False

    def __init__(
        self, meeting: Meeting, home: Home, options: RingOptions, *, stall: Callable[[], tuple[float, int]]
    ) -> None:
        self._meeting, self._home, self._options, self._stall = meeting, home, options, stall
        self._offload = Offload(1.0 if options.reads else options.share)
        self._life, self._beats = secrets.token_hex(8), itertools.count()
        self._warnings = WarnOnce("ring")
        self._shelf = Shelf([home])
        self._server = PeerServer(self._shelf, token=options.token, host=options.host, tls=options.tls)
        self.name = self._server.location
        self._roll = Roll()
        self._me = Member(self._server.location, self._life, next(self._beats), options.reads)
        self._view = self._seen({self.name: self._me})
        home.version = self._view.ring.version
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="voxload-ring", daemon=True)
        self._thread.start()

    @property
    def members(self) -> int:
        """How many members are there."""
        return self._view.members

    def fetch(self, line: bytes, key: BlockKey, path: str | None, out: Volume) -> bool:  # noqa: ARG002
        """See Elsewhere; from the block's home, unless this is it."""
        view = self._view
        home = view.ring.home(key.digest)
        if home is None or home == self.name or len(line) > _LONGEST_LINE or not self._offload.has(key.digest):
            return False
        asked = BlockKey(key.data, line.decode(), view.ring.version, key.box, key.boundary)
        is_there = view.peers.get_into(view.groups[home], asked, out, wait=0.0) is Answer.GOT
        if not is_there:
            self._offload.refused()
        return is_there

    def has(self, key: BlockKey, path: str) -> None:
        """See Elsewhere: homes know what they have."""

    def lost(self, key: BlockKey) -> None:
        """See Elsewhere."""

    def close(self) -> None:
        """Leave the ring."""
        self._ending.set()
        self._thread.join()
        with suppress(OSError, VoxloadError):
            self._meeting.leave(self.name)
        self._meeting.close()
        self._server.close()
        self._view.peers.close()
        self._home.close()

    def _keep(self) -> None:
        """Say that this is there, and hear who else is, until the end."""
        while True:
            try:
                self._me = replace(self._me, beat=next(self._beats))
                self._meeting.say(self.name, self._me.encode())
                self._see({**self._roll.hear(self._meeting.heard(), now()), self.name: self._me})
            except (OSError, VoxloadError) as error:  # the ring of last time stays
                with suppress(RuntimeWarning):
                    self._warnings.tell("meeting", str(error), remedy="members stay as they were until it answers")
            self._offload.look(now(), *self._stall())
            if self._ending.wait(EVERY):
                return

    def _see(self, members: dict[str, Member]) -> None:
        view = self._view
        readers = tuple(sorted(name for name, member in members.items() if member.reads))
        if readers != view.ring.members or len(members) != view.members:
            self._view = self._seen(members)
            self._home.version = self._view.ring.version
            view.peers.close()  # calls that are under way go on

    def _seen(self, members: dict[str, Member]) -> _View:
        readers = {name: member for name, member in members.items() if member.reads}
        groups = {name: number for number, name in enumerate(sorted(readers))}
        locations = {groups[name]: member.location for name, member in readers.items()}
        peers = TcpPeers(locations, token=self._options.token, tls=self._options.tls)
        return _View(HashRing(readers), peers, groups, len(members))


class Home:
    """Gives blocks whose home this service is, as any job of the service's would take them; a `Lender`.

    Safe to use from many threads at once; one owner closes it.

    Parameters
    ----------
    path
        Of the service's own socket.
    """

    def __init__(self, path: Path) -> None:
        self.version = ""
        """Of the ring that this service sees: it answers who sees the same one."""
        self._lock = threading.Lock()
        self._numbers: dict[bytes, int] = {}
        self._blocks: dict[int, ServedBlock] = {}
        self._given = self._end = 0
        self._client = ServiceClient(path, self._block, name="ring")

    def holds(self, key: BlockKey) -> bool:
        """See Lender: it reads what it does not have."""
        return key.field == self.version

    def get_into(self, key: BlockKey, out: Volume) -> bool:
        """See Lender."""
        if key.field != self.version:
            return False
        try:
            line = key.sample.encode()
            block = parsed(line)
        except DataError:
            return False
        unit = unit_of(block)
        wanted = BlockKey(key.data, unit.sample, unit.fields[0], unit.box, unit.boundary)
        if (block.layout.shape, block.layout.dtype) != (out.shape, out.dtype):
            return False
        number = self._number(line, block)
        is_there = self._client.fetch(number, wanted, out)
        self._client.used(number, nbytes=out.nbytes if is_there else 0)
        return is_there

    def close(self) -> None:
        """Leave the service."""
        self._client.close()

    def _number(self, line: bytes, block: ServedBlock) -> int:
        """Return a block's number, once the service is told that it is wanted."""
        with self._lock:
            number = self._numbers.get(line)
            if number is None:
                self._given += 1
                number = self._numbers[line] = self._given
                self._blocks[number] = block
                if len(self._numbers) > _REMEMBERED:
                    oldest = next(iter(self._numbers))
                    del self._blocks[self._numbers.pop(oldest)]
            place, self._end = self._end, self._end + 1
            self._client.foresee(place, np.array([number], np.int64))
        return number

    def _block(self, number: int) -> ServedBlock:
        return self._blocks[number]
