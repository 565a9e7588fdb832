"""Polling for a block that is to come, where nobody can be told to ring a bell."""

from __future__ import annotations

import time
from collections.abc import Callable

from voxload.cache.protocol import Answer

_SHORTEST, _LONGEST = 1e-3, 20e-3
"""Pauses between looks, in seconds: they double from the one to the other."""


def poll_for(look: Callable[[], Answer], seconds: float) -> Answer:
    """Return the first answer that is not ABSENT, or the last one within so many seconds; `look` is called at once."""
    end, pause = time.monotonic() + seconds, _SHORTEST
    while True:
        answer = look()
        left = end - time.monotonic()
        if answer is not Answer.ABSENT or left <= 0:
            return answer
        time.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST)
