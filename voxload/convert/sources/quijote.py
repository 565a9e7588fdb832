"""Quijote: the 3-D density cubes of the Quijote simulations.

Source: the Quijote documentation, "Density fields": ``3D_cubes/<cosmology>/<realisation>/df_m_<N>_<CIC|PCS>_z=<z>.npy``
and older ``df_m_<N>_z=<z>.npy``, (N, N, N), of a box of 1000 Mpc/h.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from voxload.convert.sources.flat import FlatSource, describe_flat
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.npy import is_npy, npy_file, npy_header
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import Source
from voxload.errors import DataError

_NAME = re.compile(r"df_m_(?P<extent>\d+)(?:_(?P<assignment>NGP|CIC|TSC|PCS))?_z=(?P<redshift>\d+(?:\.\d+)?)\.npy")
_BOX = 1000.0


class Quijote:
    """Cubes of Quijote; all those of a realisation's folder are volumes of one sample."""

    name = "Quijote 3-D cube"
    is_generic = False

    def claims(self, probe: Probe) -> bool:
        """Tell whether an npy file has a name ``df_m_<N>_z=<z>.npy``, or with the mass assignment in it."""
        return is_npy(probe) and _NAME.fullmatch(probe.path.name) is not None

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return the one cube; raises DataError when it is not of the extent that its name says."""
        match = _NAME.fullmatch(probe.path.name)
        shape = npy_header(probe.path).shape
        if match and shape != (int(match["extent"]),) * 3:
            raise DataError(
                f"{probe.path}", found=f"shape {shape}", expected=f"{match['extent']} voxels a side, as the name says"
            )
        file = npy_file(probe.path, hints.axes)
        attributes: dict[str, Any] = {"box_size": _BOX, "box_size_units": "Mpc/h", "periodic": True}
        if match:
            attributes["redshift"] = float(match["redshift"])
            if match["assignment"]:
                attributes["assignment"] = match["assignment"]
        if probe.path.parent.name.isdigit():
            attributes |= {"cosmology": probe.path.parent.parent.name, "realisation": int(probe.path.parent.name)}
        # The name stays with the dataset: cubes of several redshifts and extents lie in one realisation's folder.
        cube = replace(describe_flat(file), dataset=probe.path.stem, sample=".", attributes=attributes)
        return (FlatSource(cube, file),)
