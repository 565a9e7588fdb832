"""Limits: how much a planner has under way at once, and how long it waits for peers."""

from __future__ import annotations

from dataclasses import dataclass, fields

from voxload.errors import UsageError


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one rank's planner.

    An executor that runs every fetch in a thread of its own kind needs `storage`, `local` and `peer + awaited` of them.
    """

    storage: int = 8
    """Fetches from the storage under way at once."""
    peer: int = 4
    """Fetches from peers that surely have the block."""
    awaited: int = 4
    """Fetches from peers that may have to wait for the block first; counted apart, so that they keep nothing else."""
    local: int = 2
    """Fetches from this rank's own memory and disk."""
    parts: int = 4
    """Most blocks that one fetch brings."""
    bytes: int = 2**24
    """Most bytes that one fetch brings, unless one block alone is larger: longer fetches gain nothing any more."""
    window: int = 2
    """Steps behind that of its first block of which a fetch may bring blocks along."""
    wait: float = 0.5
    """Seconds that one fetch lets a peer wait for a block that is to come."""
    patience: float = 2.0
    """Seconds after which the step at hand no longer waits for a peer's block but takes it from the storage."""
    strikes: int = 3
    """Answers in a row that are lost, wrong or slow, after which a peer is asked for nothing more."""
    slow: float = 1.0
    """Seconds below which no answer is slow."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value < (0 if field.name in {"window", "patience"} else 1e-6):
                raise UsageError(f"limits.{field.name}", found=str(value), expected="more than 0")
