"""Warnings of a tier: each kind of trouble is told once."""

from __future__ import annotations

import threading
import warnings

from voxload.text import shown


class WarnOnce:
    """What has gone wrong with one tier; may be told of from many threads at once.

    Parameters
    ----------
    subject
        What the trouble is with.
    """

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._told: set[object] = set()
        self._lock = threading.Lock()

    def tell(self, kind: object, what: str, *, remedy: str) -> None:
        """Warn (RuntimeWarning), unless of this kind it was warned before."""
        with self._lock:
            if kind in self._told:
                return
            self._told.add(kind)
        warnings.warn(
            shown(f"{self._subject}: {what}; blocks come from elsewhere, the run goes on; {remedy}", keep="\n\t"),
            RuntimeWarning,
            stacklevel=3,
        )
