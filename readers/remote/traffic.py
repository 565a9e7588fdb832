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
    """Counts requests; safe to use from many threads at once.

    Nothing is made while the lock is held, so that no collection of garbage begins there: at an h5py object it would
    wait for h5py's lock, whose holder may be waiting to count a request.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests = self._retries = self._bytes = 0

    def add(self, *, requests: int = 0, retries: int = 0, size: int = 0) -> None:
        """Count requests, repeated ones, and bytes that arrived."""
        with self._lock:
            self._requests += requests
            self._retries += retries
            self._bytes += size

    def counts(self) -> Counts:
        """Return what was counted so far; the difference of two is the traffic between them."""
        with self._lock:
            requests, retries, size = self._requests, self._retries, self._bytes
        return Counts(requests, retries, size)

    def __str__(self) -> str:
        now = self.counts()
        return f"{now.requests} requests, {now.retries} of them repeated, {now.bytes} bytes"
