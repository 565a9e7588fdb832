"""Machine: what moves bytes in a simulated cluster, how fast, and what one line gets of it."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from voxload.errors import UsageError
from voxload.prefetch.line import Room


@dataclass(frozen=True, slots=True)
class Rates:
    """Bytes per second that a shared thing gives to all its users together, by their number."""

    users: tuple[int, ...]
    """Ascending, from 1 on."""
    totals: tuple[float, ...]
    """Bytes per second for each."""

    def __post_init__(self) -> None:
        if not self.users or len(self.users) != len(self.totals):
            raise UsageError(
                "rates", found=f"{len(self.users)} numbers of users and {len(self.totals)} rates", expected="pairs"
            )
        is_ascending = all(one < other for one, other in zip((0, *self.users), self.users, strict=False))
        if not is_ascending or min(self.totals) <= 0:
            raise UsageError(
                "rates",
                found=f"{list(zip(self.users, self.totals, strict=True))}",
                expected="positive rates by ascending numbers of users from 1 on",
            )

    def of(self, users: int) -> float:
        """Return the rate for a number of users: interpolated between those given, clamped outside.

        >>> Rates((1, 3), (10.0, 30.0)).of(2), Rates((1, 3), (10.0, 30.0)).of(8)
        (20.0, 30.0)
        """
        place = bisect_right(self.users, users)
        if place == 0:
            return self.totals[0]
        if place == len(self.users):
            return self.totals[-1]
        low, high = self.users[place - 1], self.users[place]
        share = (users - low) / (high - low)
        return self.totals[place - 1] * (1 - share) + self.totals[place] * share

    def best(self, most: int) -> float:
        """Return the highest rate that any number of users up to `most` has."""
        return max(self.of(most), *(self.of(users) for users in self.users if users <= most), 0.0)


@dataclass(frozen=True, slots=True)
class Storage:
    """What all ranks read from."""

    latency: float
    """Seconds of a request before its first byte."""
    threads: int
    """Requests of one rank at once."""
    read: Rates
    """By number of ranks that read."""


@dataclass(frozen=True, slots=True)
class Network:
    """A rank's link; both directions at once at full rate."""

    latency: float
    """Seconds of a request before its first byte."""
    threads: int
    """Requests of one rank at once."""
    rate: float
    """Bytes per second, each way."""


@dataclass(frozen=True, slots=True)
class NodeTier:
    """Memory or disk of a node that its ranks share."""

    nbytes: int
    """For blocks of all its ranks together."""
    threads: int
    """Reads of one rank at once; as many writes."""
    read: Rates
    """By reads at once on the node."""
    write: Rates
    """By writes at once on the node."""


@dataclass(frozen=True, slots=True)
class Staging:
    """A rank's buffers for whole batches."""

    nbytes: int
    """Of all slots; 0 where their number is given."""
    slots: int
    """Their number; 0: as many as the bytes hold."""
    threads: int
    """Blocks of one rank that are decoded at once."""
    decode: float
    """Decoded bytes per second of one thread; infinite where blocks are stored as they are used."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Ranks with their memory, disk and links, and the storage that they share."""

    name: str
    source: str
    """Where the figures come from."""
    ranks_per_node: int
    compute_rate: float
    """Bytes of a batch that one rank computes on per second; 0 where a step's time is given."""
    compute_seconds: float
    """Of a step; 0 where the rate is given."""
    storage: Storage
    network: Network
    memory: NodeTier
    disk: NodeTier | None
    staging: Staging

    @property
    def room(self) -> Room:
        """Bytes that each rank may fill."""
        disk = self.disk.nbytes // self.ranks_per_node if self.disk else 0
        return Room(memory=self.memory.nbytes // self.ranks_per_node, disk=disk)

    def step_seconds(self, batch_bytes: int) -> float:
        """Return the seconds that a rank computes on a batch."""
        return batch_bytes / self.compute_rate if self.compute_rate else self.compute_seconds

    def slots(self, batch_bytes: int) -> int:
        """Return how many batches a rank stages; raises UsageError where not a single one fits."""
        if self.staging.slots:
            return self.staging.slots
        slots = self.staging.nbytes // max(batch_bytes, 1)
        if slots == 0:
            raise UsageError(
                f"machine {self.name}",
                found=f"{self.staging.nbytes} bytes for staging",
                expected=f"at least those of one batch, {batch_bytes}",
                remedy="use smaller batches or blocks, or give the machine more",
            )
        return slots


@dataclass(frozen=True, slots=True)
class Shares:
    """Rates as one line sees them while the others do the same as it does.

    Lines are equal and training keeps them in step, so one is simulated: at the storage every one of its ranks stands
    for one of each line. Ranks of a group are neighbours, as `ProcessGrid` numbers them, and so share a node first.
    """

    machine: Machine
    lines: int

    @property
    def lines_on_node(self) -> int:
        """Ranks of one group on a node."""
        return min(self.lines, self.machine.ranks_per_node)

    @property
    def groups_on_node(self) -> int:
        """Groups with ranks on one node."""
        return max(1, self.machine.ranks_per_node // self.lines)

    def node_of(self, group: int) -> int:
        """Return the number of the node whose tiers a group's rank uses."""
        return group // self.groups_on_node

    def storage(self, _transfers: int, clients: int) -> float:
        """Return the storage's bytes per second for this line."""
        return self.machine.storage.read.of(clients * self.lines) / self.lines

    def tier(self, rates: Rates, transfers: int) -> float:
        """Return a node tier's bytes per second for this line."""
        return rates.of(transfers * self.lines_on_node) / self.lines_on_node
