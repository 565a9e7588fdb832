"""Job: what the processes of one world are told when they start; it travels as JSON."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

SPATIAL = {1: (1, 1, 1), 2: (2, 1, 1), 4: (2, 2, 1), 8: (2, 2, 2)}
"""Blocks along (d, h, w), by the number of ranks."""
PLAIN, SHARD, NONE, P2P, ALL_TO_ALL = "plain", "shard", "none", "p2p", "alltoall"
"""Torch's own network, what `shard` makes of it by default, and split ones by their exchange."""
PAD, AUTO = "pad", "auto"
JOINS = (PAD, "patch", "add", AUTO)
"""How a split network's convolutions join halos and blocks; see `voxload.engine.shard`."""
CHANNELS = TARGETS = 4


@dataclass(frozen=True, slots=True)
class Way:
    """How a rank runs the network."""

    exchange: str
    """One of the names above."""
    join: str = PAD
    """One of JOINS."""
    of: int = 0
    """Run the part of the first of so many ranks, whose others are not there; 0 for the world's own ranks."""

    @property
    def is_true(self) -> bool:
        """Whether results are those of the network: with messages that do not travel they are not."""
        return self.exchange != NONE


@dataclass(frozen=True, slots=True)
class Job:
    """A world of ranks that share one sample."""

    ranks: int
    size: int
    """Voxels of the whole volume along each axis."""
    device: str
    """``cpu``, or ``cuda``: each rank has a GPU of its own."""
    limit: float
    """Seconds after which a rank that has not answered says where it is, and ends."""
    folder: str
    """Where the ranks meet."""

    def write(self, path: Path) -> None:
        """Store it for the processes."""
        path.write_text(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Job:
        """Return what was stored."""
        return cls(**json.loads(path.read_text()))
