"""Which format a file is of: decided by its content, never by its name alone."""

from __future__ import annotations

from pathlib import Path

from voxload.convert.sources.asdffile import Asdf
from voxload.convert.sources.camels import CamelsGrids
from voxload.convert.sources.cosmoflow2018 import Cosmoflow2018
from voxload.convert.sources.cosmouniverse import CosmoUniverse
from voxload.convert.sources.dlio import Dlio
from voxload.convert.sources.fits import Fits
from voxload.convert.sources.fortrangrid import FortranGrid
from voxload.convert.sources.gadget import GadgetHdf5
from voxload.convert.sources.hdf5 import Hdf5
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.lbannsplit import LbannSplit
from voxload.convert.sources.metaimage import MetaImage
from voxload.convert.sources.mlperf import MlperfCosmoflow
from voxload.convert.sources.mlperfsplit import MlperfSplit
from voxload.convert.sources.multiscale import MultiScale
from voxload.convert.sources.nifti import Nifti
from voxload.convert.sources.nopfs import NopfsRaw
from voxload.convert.sources.nopfssplit import NopfsSplit
from voxload.convert.sources.npy import Npy
from voxload.convert.sources.npz import Npz
from voxload.convert.sources.nrrd import Nrrd
from voxload.convert.sources.nyxhdf5 import NyxHdf5
from voxload.convert.sources.nyxraw import NyxRaw
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import RawFormat, Source
from voxload.convert.sources.pycola import PyColaGrid, PyColaParticles
from voxload.convert.sources.quijote import Quijote
from voxload.convert.sources.raw import RawSource
from voxload.convert.sources.sdrbench import SdrBench
from voxload.convert.sources.thewell import TheWell
from voxload.convert.sources.zarrfolder import ZarrFolder
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
