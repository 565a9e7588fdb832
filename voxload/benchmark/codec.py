"""Codec: how generated chunks are compressed; pure but for the trial of one chunk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numcodecs
import numpy as np
from numcodecs.abc import Codec as Coder

from voxload.errors import UsageError
from voxload.readers.protocol import Volume

NONE = "none"
_LEVELS: dict[str, range] = {
    NONE: range(0),
    "gzip": range(10),
    "shuffle-gzip": range(10),
    "zstd": range(1, 23),
    "shuffle-zstd": range(1, 23),
    "lz4": range(0),
    "blosc-lz4": range(10),
    "blosc-zstd": range(10),
}
"""Levels that a codec takes; none where it has none."""
_DEFAULTS = {"gzip": 1, "shuffle-gzip": 1, "zstd": 3, "shuffle-zstd": 3, "blosc-lz4": 5, "blosc-zstd": 5}
_SHUFFLE = "shuffle-"
_BLOSC = "blosc-"

CODECS = tuple(_LEVELS)
"""Names of all codecs. ``shuffle-`` ones order bytes by significance first, which the ``blosc-`` ones do themselves."""


@dataclass(frozen=True, slots=True)
class Codec:
    """A codec with its level."""

    name: str = NONE
    """One of `CODECS`."""
    level: int | None = None
    """Effort; None for the codec's usual one. See `effort`."""

    def __post_init__(self) -> None:
        if self.name not in CODECS:
            raise UsageError("codec", found=repr(self.name), expected=f"one of {', '.join(CODECS)}")
        levels = _LEVELS[self.name]
        if self.level is not None and self.level not in levels:
            expected = f"{levels.start} to {levels.stop - 1}" if levels else "no level"
            raise UsageError(f"level of codec {self.name}", found=str(self.level), expected=expected)

    @property
    def effort(self) -> int:
        """The level that is used; 0 where the codec has none."""
        return _DEFAULTS.get(self.name, 0) if self.level is None else self.level

    @property
    def is_none(self) -> bool:
        """Whether voxels are stored as they are."""
        return self.name == NONE

    @property
    def is_shuffled(self) -> bool:
        """Whether bytes are ordered by significance in a step of their own."""
        return self.name.startswith(_SHUFFLE)

    @property
    def is_blosc(self) -> bool:
        """Whether blosc does it, which then shuffles: bits of integers, bytes of floats."""
        return self.name.startswith(_BLOSC)

    @property
    def base(self) -> str:
        """Name of the compressor alone, such as ``gzip`` or ``lz4``."""
        return self.name.removeprefix(_SHUFFLE).removeprefix(_BLOSC)

    def coder(self, dtype: np.dtype[Any]) -> Coder | None:
        """Return numcodecs' compressor without a shuffle before it; None for the codec ``none``."""
        if self.is_none:
            return None
        if self.is_blosc:
            shuffle = numcodecs.Blosc.SHUFFLE if dtype.kind == "f" else numcodecs.Blosc.BITSHUFFLE
            return numcodecs.Blosc(cname=self.base, clevel=self.effort, shuffle=shuffle)
        if self.base == "gzip":
            return numcodecs.GZip(level=self.effort)
        return numcodecs.LZ4() if self.base == "lz4" else numcodecs.Zstd(level=self.effort)

    def stored_size(self, chunk: Volume) -> int:
        """Compress a chunk and return its bytes, those of a file's own headers left out."""
        coder, content = self.coder(chunk.dtype), np.ascontiguousarray(chunk)
        if coder is None:
            return content.nbytes
        if self.is_shuffled:
            content = numcodecs.Shuffle(elementsize=chunk.itemsize).encode(content)
        return len(coder.encode(content))
