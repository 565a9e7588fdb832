"""Seats: which reads take a core before they plan."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from voxload.readers.chunkcache import chunk_cache
from voxload.readers.team import team


def working(*, is_local: bool) -> AbstractContextManager[None]:
    """Return what gives a read its seat; nothing where it may wait for a server, or for chunks that others load."""
    return team().seat() if is_local and chunk_cache() is None else nullcontext()
