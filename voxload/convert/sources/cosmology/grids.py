"""Grids of PyCOLA, Quijote and CAMELS: files of numpy whose names say which simulation they are of.

PyColaGrid and PyColaParticles: what the PyCOLA pipeline of the CosmoFlow simulations writes. Source: NERSC/cosmoflow-
sims: ``*_dim512_full.npy``, the histogram of a whole box, ``*_dim128_cube<n>.npy`` and ``*_dim512_sheet<n>.npy``,
parts of it, and ``ics_*.npz`` with the positions ``px``, ``py``, ``pz`` of particles.

Quijote: the 3-D density cubes of the Quijote simulations. Source: the Quijote documentation, "Density fields":
``3D_cubes/<cosmology>/<realisation>/df_m_<N>_<CIC|PCS>_z=<z>.npy`` and older ``df_m_<N>_z=<z>.npy``, (N, N, N), of a
box of 1000 Mpc/h.

CamelsGrids: the 3-D grids of the CAMELS Multifield Dataset. Source: the documentation of CMD, "Organization" and "3D
grids": ``Grids_<field>_<suite>_<set>_<N>_z=<z>.npy`` is one array (simulations, N, N, N), periodic along its three
spatial axes.
"""

from __future__ import annotations

import re
from dataclasses import replace
from math import prod
from typing import Any

from voxload.convert.sources.arrays.npy import NpyHeader, first_member, is_npy, npy_file, npy_header, read_headers
from voxload.convert.sources.binary.flat import FlatFile, FlatSource, describe_flat
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import Source
from voxload.errors import DataError, UsageError
from voxload.readers.axes import resolve_axes

_PYCOLA_NAME = re.compile(r".+_dim(?P<extent>\d+)_(?P<piece>full|cube\d+|sheet\d+)\.npy")
_POSITIONS = ("px", "py", "pz")


class PyColaGrid:
    """Density histograms: plain npy files whose name says which piece of the box they are."""

    name = "PyCOLA grid"
    is_generic = False

    def claims(self, probe: Probe) -> bool:
        """Tell whether an npy file has a name ``*_dim<N>_full.npy``, ``_cube<n>.npy`` or ``_sheet<n>.npy``."""
        return is_npy(probe) and _PYCOLA_NAME.fullmatch(probe.path.name) is not None

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return the one cube; raises DataError when it is not of the extent that its name says."""
        match = _PYCOLA_NAME.fullmatch(probe.path.name)
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


_QUIJOTE_NAME = re.compile(
    r"df_m_(?P<extent>\d+)(?:_(?P<assignment>NGP|CIC|TSC|PCS))?_z=(?P<redshift>\d+(?:\.\d+)?)\.npy"
)
_QUIJOTE_BOX = 1000.0


class Quijote:
    """Cubes of Quijote; all those of a realisation's folder are volumes of one sample."""

    name = "Quijote 3-D cube"
    is_generic = False

    def claims(self, probe: Probe) -> bool:
        """Tell whether an npy file has a name ``df_m_<N>_z=<z>.npy``, or with the mass assignment in it."""
        return is_npy(probe) and _QUIJOTE_NAME.fullmatch(probe.path.name) is not None

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return the one cube; raises DataError when it is not of the extent that its name says."""
        match = _QUIJOTE_NAME.fullmatch(probe.path.name)
        shape = npy_header(probe.path).shape
        if match and shape != (int(match["extent"]),) * 3:
            raise DataError(
                f"{probe.path}", found=f"shape {shape}", expected=f"{match['extent']} voxels a side, as the name says"
            )
        file = npy_file(probe.path, hints.axes)
        attributes: dict[str, Any] = {"box_size": _QUIJOTE_BOX, "box_size_units": "Mpc/h", "periodic": True}
        if match:
            attributes["redshift"] = float(match["redshift"])
            if match["assignment"]:
                attributes["assignment"] = match["assignment"]
        if probe.path.parent.name.isdigit():
            attributes |= {"cosmology": probe.path.parent.parent.name, "realisation": int(probe.path.parent.name)}
        # The name stays with the dataset: cubes of several redshifts and extents lie in one realisation's folder.
        cube = replace(describe_flat(file), dataset=probe.path.stem, sample=".", attributes=attributes)
        return (FlatSource(cube, file),)


_CAMELS_NAME = re.compile(
    r"Grids_(?P<field>[A-Za-z0-9]+)_(?P<suite>.+)_(?P<set>[A-Za-z0-9]+)_(?P<extent>\d+)_z=(?P<redshift>\d+(?:\.\d+)?)\.npy"
)


class CamelsGrids:
    """Grids of CMD: one sample for each simulation, whose fields are volumes of it in a file each."""

    name = "CAMELS 3-D grids"
    is_generic = False

    def claims(self, probe: Probe) -> bool:
        """Tell whether an npy file has a name ``Grids_<field>_<suite>_<set>_<N>_z=<z>.npy``."""
        return is_npy(probe) and _CAMELS_NAME.fullmatch(probe.path.name) is not None

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return one cube for each simulation.

        Raises
        ------
        DataError
            When the extents are not those of the name, or the file is shorter or longer than its array.
        UsageError
            When the simulations do not lie one behind the other.
        """
        match = _CAMELS_NAME.fullmatch(probe.path.name)
        if match is None:
            raise UsageError(
                f"{probe.path}", found="another name", expected="Grids_<field>_<suite>_<set>_<N>_z=<z>.npy"
            )
        header = npy_header(probe.path)
        _check_camels_shape(probe, header, int(match["extent"]))
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


def _check_camels_shape(probe: Probe, header: NpyHeader, extent: int) -> None:
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
