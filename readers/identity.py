"""Identity: what tells a stored chunk from all others, and from itself once it was written anew."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from voxload.readers.parts import Place
from voxload.readers.stamp import Stamp


@dataclass(frozen=True, slots=True)
class Identity:
    """A chunk as stored: two that are equal hold the same bytes, whichever reader asks."""

    source: Stamp | tuple[str, str]
    """The file that holds it, as it was; of an object behind a URL, its name and its strong entity tag."""
    part: Hashable = ()
    """Which of the chunks in there; nothing where the file is one chunk."""
    checksum: int | None = None
    """What its bytes are compared with before they are decoded; None where they are compared with nothing."""


Identify = Callable[[Sequence[Place]], Sequence[Identity | None]]
"""Tells chunks from all others; None of those of which nothing tells that they were not written anew."""
