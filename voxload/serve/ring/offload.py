"""Offload: which blocks a node has others read, though it could; pure.

As in FastFlow and Cachew, the share follows what was measured: while jobs wait for blocks, more are read elsewhere;
while they do not, or others have too much to do, fewer are. Which these are is a matter of their digests, so that
others have them the next time, too.
"""

from __future__ import annotations

_WAITS, _RUNS = 0.05, 0.01
"""Of a job's time: a loop that waits for more than the one has others read more, for less than the other fewer."""
_MORE, _LESS = 0.1, 0.02
"""Steps of the share."""
_BYTES = 4


class Offload:
    """A share from 0 to 1; used by one thread, but for `has` and `refused`.

    Parameters
    ----------
    share
        That never changes; None for one that follows the stall.
    """

    def __init__(self, share: float | None = None) -> None:
        self._is_fixed = share is not None
        self.share = 0.0 if share is None else share
        self._last: tuple[float, float] | None = None
        self._is_refused = False

    def look(self, now: float, stalled: float, jobs: int) -> None:
        """Take in how long jobs have waited so far, all together."""
        last, self._last = self._last, (now, stalled)
        if self._is_fixed or last is None or now <= last[0] or not jobs:
            return
        is_refused, self._is_refused = self._is_refused, False
        waits = (stalled - last[1]) / (now - last[0]) / jobs
        if is_refused:  # jobs wait for what others are too slow with: more of it would be slower still
            self.share = max(0.0, self.share - _MORE)
        elif waits > _WAITS:
            self.share = min(1.0, self.share + _MORE)
        elif waits < _RUNS:
            self.share = max(0.0, self.share - _LESS)

    def refused(self) -> None:
        """Note that others did not give a block that they were asked for."""
        self._is_refused = True

    def has(self, block: bytes) -> bool:
        """Tell whether others are to read a block, by its digest."""
        place = int.from_bytes(block[-_BYTES:], "little")
        return place < self.share * (1 << 8 * _BYTES)
