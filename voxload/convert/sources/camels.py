"""CamelsGrids: the 3-D grids of the CAMELS Multifield Dataset.

Source: the documentation of CMD, "Organization" and "3D grids": ``Grids_<field>_<suite>_<set>_<N>_z=<z>.npy`` is one
array (simulations, N, N, N), periodic along its three spatial axes.
"""

from __future__ import annotations

import re
from dataclasses import replace
from math import prod

from voxload.convert.sources.flat import FlatFile, FlatSource, describe_flat
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.npy import NpyHeader, is_npy, npy_header
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import Source
from voxload.errors import DataError, UsageError
from voxload.readers.axes import resolve_axes

_NAME = re.compile(
    r"Grids_(?P<field>[A-Za-z0-9]+)_(?P<suite>.+)_(?P<set>[A-Za-z0-9]+)_(?P<extent>\d+)_z=(?P<redshift>\d+(?:\.\d+)?)\.npy"
)


class CamelsGrids:
    """Grids of CMD: one sample for each simulation, whose fields are volumes of it in a file each."""

    name = "CAMELS 3-D grids"
    is_generic = False

    def claims(self, probe: Probe) -> bool:
        """Tell whether an npy file has a name ``Grids_<field>_<suite>_<set>_<N>_z=<z>.npy``."""
        return is_npy(probe) and _NAME.fullmatch(probe.path.name) is not None

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return one cube for each simulation.

        Raises
        ------
        DataError
            When the extents are not those of the name, or the file is shorter or longer than its array.
        UsageError
            When the simulations do not lie one behind the other.
        """
        match = _NAME.fullmatch(probe.path.name)
        if match is None:
            raise UsageError(
                f"{probe.path}", found="another name", expected="Grids_<field>_<suite>_<set>_<N>_z=<z>.npy"
            )
        header = npy_header(probe.path)
        _check_shape(probe, header, int(match["extent"]))
        redshift = float(match["redshift"])
        order = resolve_axes(f"{probe.path}", ndim=3, given=hints.axes, declared="DHW")
        count, *extents = header.shape
        first = FlatFile(probe.path, header.length, shape=tuple(extents), dtype=header.dtype, order=order)
        facts = replace(
            describe_flat(first),
            dataset=match["field"],
            # Redshift 0 is written 0.0 of some fields and 0.00 of others.
            sample=f"{match['suite']}_{match['set']}_{match['extent']}_z={redshift}",
            attributes={"suite": match["suite"], "set": match["set"], "redshift": redshift, "periodic": True},
        )
        stride, width = prod(extents) * header.dtype.itemsize, len(str(count - 1))
        return tuple(
            FlatSource(
                replace(facts, part=f"{number:0{width}d}"), replace(first, offset=header.length + number * stride)
            )
            for number in range(count)
        )


def _check_shape(probe: Probe, header: NpyHeader, extent: int) -> None:
    """Refuse what is not as its name says; the length of the file is compared once for all cubes."""
    if len(header.shape) != 4 or header.shape[1:] != (extent,) * 3:
        raise DataError(
            f"{probe.path}",
            found=f"shape {header.shape}",
            expected=f"(simulations, {extent}, {extent}, {extent}), as the name says",
        )
    if header.is_fortran:
        raise UsageError(
            f"{probe.path}",
            found="an array in Fortran order, whose simulations are interleaved",
            expected="C order, one simulation behind the other",
            remedy="save it again with numpy.ascontiguousarray",
        )
    if probe.size != header.size:
        raise DataError(
            f"{probe.path}",
            found=f"{probe.size} bytes",
            expected=f"{header.size} bytes for {header.dtype.str} {header.shape}",
            remedy="the file is truncated: copy it again",
        )
