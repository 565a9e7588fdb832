"""Outcomes: what can come of reading a damaged volume, and which of it is a failure of the reader."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Outcome(enum.Enum):
    """What came of one input; the value is what tables call it."""

    RIGHT = "right data"
    DATA_ERROR = "DataError"
    USAGE_ERROR = "UsageError"
    NOT_FOUND = "NotFoundError"
    STORAGE_ERROR = "StorageError"
    UNCOVERED = "wrong data, no checksum exists"
    INTERNAL = "InternalError"
    SILENT = "wrong data under a checksum"
    FOREIGN = "foreign exception"
    MEMORY = "memory beyond the bound"
    HANG = "hang"
    CRASH = "crash"
    LIBRARY_HANG = "hang, of h5py alone too"
    LIBRARY_CRASH = "crash, of h5py alone too"

    @property
    def is_failure(self) -> bool:
        """Whether the reader must never do that."""
        return self not in _ALLOWED


_ALLOWED = frozenset(
    {
        *(Outcome.RIGHT, Outcome.DATA_ERROR, Outcome.USAGE_ERROR, Outcome.NOT_FOUND),
        *(Outcome.STORAGE_ERROR, Outcome.UNCOVERED),
    }
)
BY_CLASS = {
    "DataError": Outcome.DATA_ERROR,
    "UsageError": Outcome.USAGE_ERROR,
    "NotFoundError": Outcome.NOT_FOUND,
    "StorageError": Outcome.STORAGE_ERROR,
    "InternalError": Outcome.INTERNAL,
}
"""Class of an error of ours to what it counts as."""


@dataclass(frozen=True, slots=True)
class Record:
    """One input and what came of it."""

    index: int
    """Number of the input; with the seed it makes the input again."""
    target: str
    """Volume that was damaged."""
    mutation: str
    """How."""
    outcome: Outcome
    detail: str
    """Error message, or signal."""
