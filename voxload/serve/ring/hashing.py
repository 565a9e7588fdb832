"""Hashing: which member is the home of a block; pure. Karger et al. 1997, consistent hashing.

Each member has many points on a circle, and a block's home is whose point comes next. Where one comes or goes, blocks
change their homes to or from that one alone.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable

_POINTS = 160
"""Of each member: homes then differ by some tenths in what they have."""
_BYTES = 8


class HashRing:
    """Members on a circle; immutable.

    Parameters
    ----------
    members
        Their names; those that have the same ones make the same ring, in whatever order they name them.
    """

    def __init__(self, members: Iterable[str]) -> None:
        self.members = tuple(sorted(set(members)))
        points = sorted((_place(f"{name}\n{point}"), name) for name in self.members for point in range(_POINTS))
        self._places = [place for place, _ in points]
        self._names = [name for _, name in points]
        self.version = hashlib.blake2b("\n".join(self.members).encode(), digest_size=_BYTES).hexdigest()
        """What rings of the same members have in common, and others have not."""

    def home(self, block: bytes) -> str | None:
        """Return the home of a block by its digest; None where there is no member."""
        if not self._places:
            return None
        at = bisect_right(self._places, int.from_bytes(block[:_BYTES], "little"))
        return self._names[at % len(self._names)]


def _place(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=_BYTES).digest(), "little")
