"""Particles: snapshots that are no cubes before their mass is assigned to a grid, refused with a word on how.

``PartType<n>/Coordinates`` and a group ``Header`` that counts the particles in its attributes; Arepo, SWIFT and
GIZMO write the same. Source: Gadget-4, documentation, snapshot format 3.
"""

from __future__ import annotations

import re

from voxload.convert.sources.hints import Hints
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import Source
from voxload.errors import UsageError

_COORDINATES = re.compile(r"PartType\d/Coordinates")
_COUNTS = frozenset({"NumPart_ThisFile", "NumPart_Total"})


class GadgetHdf5:
    """Snapshots of particles; they become cubes by mass assignment only."""

    name = "Gadget HDF5 particles"
    is_generic = False

    def claims(self, probe: Probe) -> bool:
        """Tell whether an HDF5 file holds ``PartType<n>/Coordinates`` and a ``Header`` that counts particles."""
        tree = probe.hdf5
        if tree is None or not _COUNTS & set(tree.groups.get("Header", {})):
            return False
        return any(_COORDINATES.fullmatch(name) for name in tree.datasets)

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:  # noqa: ARG002 - the contract's signature
        """Refuse the file."""
        raise UsageError(
            f"{probe.path}",
            found="particles, not a cube",
            expected="voxels on a grid",
            remedy="assign them to one: voxload convert --grid 512 --assign cic",
        )
