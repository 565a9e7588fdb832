"""Traffic: what was asked of a remote storage so far."""

from __future__ import annotations

import threading
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Counts:
    """Traffic at one moment."""

    requests: int = 0
    """Requests sent, the repeated ones too."""
    retries: int = 0
    """Requests that repeat one that failed."""
    bytes: int = 0
    """Bytes of objects that arrived."""

    def __sub__(self, earlier: Counts) -> Counts:
        return Counts(self.requests - earlier.requests, self.retries - earlier.retries, self.bytes - earlier.bytes)


class Traffic:
    """Counts requests; safe to use from many threads at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = Counts()

    def add(self, *, requests: int = 0, retries: int = 0, size: int = 0) -> None:
        """Count requests, repeated ones, and bytes that arrived."""
        with self._lock:
            now = self._counts
            self._counts = Counts(now.requests + requests, now.retries + retries, now.bytes + size)

    def counts(self) -> Counts:
        """Return what was counted so far; the difference of two is the traffic between them."""
        with self._lock:
            return self._counts

    def __str__(self) -> str:
        now = self.counts()
        return f"{now.requests} requests, {now.retries} of them repeated, {now.bytes} bytes"
