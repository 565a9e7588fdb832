"""PyColaGrid and PyColaParticles: what the PyCOLA pipeline of the CosmoFlow simulations writes.

Source: NERSC/cosmoflow-sims: ``*_dim512_full.npy``, the histogram of a whole box, ``*_dim128_cube<n>.npy`` and
``*_dim512_sheet<n>.npy``, parts of it, and ``ics_*.npz`` with the positions ``px``, ``py``, ``pz`` of particles.
"""

from __future__ import annotations

import re
from dataclasses import replace

from voxload.convert.sources.flat import FlatSource, describe_flat
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.npy import is_npy, npy_file, npy_header
from voxload.convert.sources.npz import read_headers
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import Source
from voxload.convert.sources.zipmember import first_member
from voxload.errors import DataError, UsageError

_NAME = re.compile(r".+_dim(?P<extent>\d+)_(?P<piece>full|cube\d+|sheet\d+)\.npy")
_POSITIONS = ("px", "py", "pz")


class PyColaGrid:
    """Density histograms: plain npy files whose name says which piece of the box they are."""

    name = "PyCOLA grid"
    is_generic = False

    def claims(self, probe: Probe) -> bool:
        """Tell whether an npy file has a name ``*_dim<N>_full.npy``, ``_cube<n>.npy`` or ``_sheet<n>.npy``."""
        return is_npy(probe) and _NAME.fullmatch(probe.path.name) is not None

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return the one cube; raises DataError when it is not of the extent that its name says."""
        match = _NAME.fullmatch(probe.path.name)
        piece = match["piece"] if match else ""
        shape = npy_header(probe.path).shape
        if match and not piece.startswith("sheet") and shape != (int(match["extent"]),) * 3:
            raise DataError(
                f"{probe.path}", found=f"shape {shape}", expected=f"{match['extent']} voxels a side, as the name says"
            )
        file = npy_file(probe.path, hints.axes)
        return (FlatSource(replace(describe_flat(file), attributes={"piece": piece}), file),)


class PyColaParticles:
    """Positions of particles, which are no cube before they are put on a grid."""

    name = "PyCOLA particles"
    is_generic = False

    def claims(self, probe: Probe) -> bool:
        """Tell whether an archive of numpy holds ``px``, ``py`` and ``pz``."""
        return first_member(probe).endswith(".npy") and set(_POSITIONS) <= set(read_headers(probe.path))

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Raise UsageError: particles need a grid and a mass assignment."""
        del hints
        raise UsageError(
            f"{probe.path}",
            found=f"positions of particles {', '.join(_POSITIONS)}",
            expected="a cube of voxels",
            remedy="put them on a grid: voxload convert --grid 512 --assign cic",
        )
