"""VolumePlan: one volume that a conversion will store, and the raw cubes it is made of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from voxload.convert.manifest import Manifest
from voxload.convert.plan.tiles import Tiling
from voxload.convert.sources.protocol import Source


@dataclass(frozen=True, slots=True)
class VolumePlan:
    """How one volume is converted; can be sent to another process."""

    manifest: Manifest
    """What the volume will say of itself."""
    sources: tuple[Source, ...]
    """The raw cubes, one for each part of the manifest."""
    tiling: Tiling
    """What is read at once of each cube."""
    final: Path
    """Where the volume will be."""

    @property
    def decoded_bytes(self) -> int:
        """Bytes of all voxels."""
        return self.manifest.decoded_bytes

    @property
    def kind(self) -> str:
        """Name under which its compression was measured."""
        return f"{self.manifest.dataset} {np.dtype(self.manifest.dtype)}"

    @property
    def channel_groups(self) -> int:
        """Chunks along the channels."""
        return self.manifest.shape[0] // self.manifest.chunks[0]
