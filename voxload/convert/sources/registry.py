"""Which format a file is of: decided by its content, never by its name alone."""

from __future__ import annotations

from pathlib import Path

from voxload.convert.sources.arrays.asdf import Asdf
from voxload.convert.sources.arrays.fits import Fits
from voxload.convert.sources.arrays.hdf5 import Hdf5
from voxload.convert.sources.arrays.headerless import RawSource
from voxload.convert.sources.arrays.npy import Npy, Npz
from voxload.convert.sources.arrays.zarr import ZarrFolder
from voxload.convert.sources.cosmology.cosmoflow import CosmoUniverse, LbannSplit, MlperfSplit, MultiScale, NopfsSplit
from voxload.convert.sources.cosmology.grids import CamelsGrids, PyColaGrid, PyColaParticles, Quijote
from voxload.convert.sources.cosmology.nyx import NyxHdf5, NyxRaw
from voxload.convert.sources.cosmology.particles import GadgetHdf5
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.medicine.dicom import Dicom
from voxload.convert.sources.medicine.metaimage import MetaImage
from voxload.convert.sources.medicine.nifti import Nifti
from voxload.convert.sources.medicine.nrrd import Nrrd
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import RawFormat, Source
from voxload.convert.sources.records.cosmoflow import Cosmoflow2018, MlperfCosmoflow, NopfsRaw
from voxload.convert.sources.simulation.benchmarks import Dlio, SdrBench
from voxload.convert.sources.simulation.fortran import FortranGrid
from voxload.convert.sources.simulation.thewell import TheWell
from voxload.errors import NotFoundError, UsageError

FORMATS: tuple[RawFormat, ...] = (
    CosmoUniverse(),
    MlperfSplit(),
    NopfsSplit(),
    LbannSplit(),
    MultiScale(),
    NyxHdf5(),
    TheWell(),
    Dlio(),
    GadgetHdf5(),
    MlperfCosmoflow(),
    Cosmoflow2018(),
    NopfsRaw(),
    PyColaGrid(),
    PyColaParticles(),
    NyxRaw(),
    SdrBench(),
    Quijote(),
    CamelsGrids(),
    FortranGrid(),
    Fits(),
    Nifti(),
    Nrrd(),
    MetaImage(),
    Dicom(),
    Asdf(),
    Hdf5(),
    ZarrFolder(),
    Npz(),
    Npy(),
)
"""Every format, in the order of asking."""
HEADERLESS = (NopfsRaw, NyxRaw, SdrBench)
"""Formats known by name and size alone: of their files the caller may say what else is true."""


def find_format(probe: Probe, kind: str = "") -> RawFormat | None:
    """Return the format of a file, or None when nothing here knows its content.

    Raises
    ------
    NotFoundError
        When `kind` names no format.
    UsageError
        When two formats know the file equally well, or the one that `kind` names does not.
    DataError
        When the file is of a known kind and damaged.
    """
    if kind:
        return _named(probe, kind)
    found = [known for known in FORMATS if known.claims(probe)]
    close = [known for known in found if not known.is_generic]
    if len(close) > 1:
        raise UsageError(
            f"{probe.path}",
            found=" or ".join(known.name for known in close),
            expected="one format",
            remedy=f'say which with --from "{close[0].name}"',
        )
    return next(iter(close or found), None)


def _named(probe: Probe, kind: str) -> RawFormat:
    for known in FORMATS:
        if known.name.lower() == kind.lower():
            if known.claims(probe):
                return known
            raise UsageError(f"{probe.path}", found="another content", expected=known.name, remedy="leave --from out")
    raise NotFoundError(
        "--from", found=f"no format {kind!r}", expected=f"one of {', '.join(known.name for known in FORMATS)}"
    )


def open_sources(path: Path, hints: Hints | None = None) -> tuple[Source, ...]:
    """Return the raw cubes in a file, none when nothing here knows its content.

    Parameters
    ----------
    path
        The file.
    hints
        What the caller knows of it.

    Raises
    ------
    UsageError
        When the file is described as headerless and has a header, when it is of two formats, or hints do not fit.
    DataError
        When the file is known and damaged.
    """
    hints, probe = hints or Hints(), Probe(path)
    known = find_format(probe, hints.kind)
    if hints.headerless is not None and not isinstance(known, HEADERLESS):
        if known is not None:
            raise UsageError(
                f"{path}",
                found=f"{known.name} with a header of its own",
                expected="headerless binary, as --shape, --dtype and --order say",
                remedy="leave these options out",
            )
        return (RawSource(path, hints.headerless, hints.axes),)
    return known.sources(probe, hints) if known is not None else ()
