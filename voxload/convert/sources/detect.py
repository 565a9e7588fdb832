"""Which source a file is: decided by its content, never by its name alone."""

from __future__ import annotations

from pathlib import Path

from voxload.convert.sources.cosmouniverse import CosmoUniverseSource
from voxload.convert.sources.npy import NpySource
from voxload.convert.sources.protocol import Source
from voxload.convert.sources.raw import Headerless, RawSource
from voxload.errors import UsageError
from voxload.readers.faults import translated
from voxload.readers.hdf5.format import Hdf5Format
from voxload.readers.npy import NpyFormat


def open_source(path: Path, *, axes: str | None = None, headerless: Headerless | None = None) -> Source | None:
    """Return the source for a file, or None when nothing here knows its content.

    Parameters
    ----------
    path
        The file.
    axes
        Order of the axes, where the file does not say or the caller knows better.
    headerless
        Shape, type and order of files without a header.

    Raises
    ------
    UsageError
        When `headerless` is given for a file that has a header, or axes do not fit.
    DataError
        When the file is known and damaged.
    """
    known = _known(path)
    if headerless is not None:
        if known is not None:
            raise UsageError(
                f"{path}",
                found=f"{known.__name__.removesuffix('Source')} with a header of its own",
                expected="headerless binary, as --shape, --dtype and --order say",
                remedy="leave these options out",
            )
        return RawSource(path, headerless, axes)
    return known(path, axes) if known is not None else None


def _known(path: Path) -> type[CosmoUniverseSource | NpySource] | None:
    with translated(f"{path}"):
        if Hdf5Format().claims(str(path)):
            return CosmoUniverseSource
        if NpyFormat().claims(str(path)):
            return NpySource
    return None
