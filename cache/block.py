"""BlockKey: what tells a stored block from all others."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

from voxload.geometry import Boundary, Box


@dataclass(frozen=True)
class BlockKey:
    """Which voxels a block holds; equal keys mean equal bytes."""

    data: str
    """Identity of the data: changes whenever what is stored for any sample changes."""
    sample: str
    """Sample id."""
    field: str
    """Name of the volume in the sample."""
    box: Box
    """In global voxel indices, halo included."""
    boundary: Boundary
    """What lies outside the sample, where the box reaches there."""

    @cached_property
    def digest(self) -> bytes:
        """Sixteen bytes that stand for the key in tables and names; collisions are beyond reach (BLAKE2b, RFC 7693)."""
        parts = (self.data, self.sample, self.field, str(self.box), str(self.boundary))
        digest = hashlib.blake2b(digest_size=16)
        for part in parts:
            text = part.encode()
            digest.update(len(text).to_bytes(8, "little") + text)
        return digest.digest()
