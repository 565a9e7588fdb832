"""FITS: image cubes of astronomy, one volume for each image of three or four axes.

NAXIS1 runs fastest, so a file's (NAXIS1, NAXIS2, NAXIS3) are W, H and D. Headers are read by astropy, voxels by
position. Source: the FITS Standard, version 4.0.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from voxload.convert.sources.fitsvalues import fits_values
from voxload.convert.sources.flat import FlatFile
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.imagenames import IMAGE, check_names, wanted_names
from voxload.convert.sources.inflater import inflated_head
from voxload.convert.sources.libraries import library
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import RawCube, Source
from voxload.convert.sources.stored import StoredSource, scratch_bytes
from voxload.errors import DataError, UsageError
from voxload.readers.axes import resolve_axes
from voxload.readers.faults import translated

_FIRST_CARD = b"SIMPLE  =                    T"
_STRUCTURE = ("SIMPLE", "XTENSION", "BITPIX", "NAXIS", "EXTEND", "PCOUNT", "GCOUNT", "BSCALE", "BZERO", "BLANK")
_TEXTS = ("", "COMMENT", "HISTORY")
_LARGEST_RANK = 4


@dataclass(frozen=True, slots=True)
class _Unit:
    """One header and data unit."""

    header: Any
    """Its header, as astropy has it."""
    start: int
    """First byte of its data."""
    stop: int
    """One past the last byte of its data, padding included."""
    data_bytes: int
    """Length of its data without padding."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents, slowest axis first."""
        return tuple(self.header[f"NAXIS{axis}"] for axis in range(self.header["NAXIS"], 0, -1))

    @property
    def is_cube(self) -> bool:
        """Whether it is an image of three or four axes."""
        is_image = self.header.get("XTENSION", "IMAGE").strip() == "IMAGE" and not self.header.get("GROUPS", False)
        return is_image and self.header["NAXIS"] in (3, _LARGEST_RANK) and min(self.shape) > 0

    @property
    def is_compressed_cube(self) -> bool:
        """Whether it is a table that holds a compressed image of three or four axes."""
        return bool(self.header.get("ZIMAGE", False)) and self.header.get("ZNAXIS") in (3, _LARGEST_RANK)


class Fits:
    """Image cubes in FITS files."""

    name = "FITS"
    is_generic = False

    def claims(self, probe: Probe) -> bool:
        """Tell whether the file begins with the first card of a FITS file, or is one in gzip."""
        return probe.head.startswith(_FIRST_CARD) or inflated_head(probe.head).startswith(_FIRST_CARD)

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return a cube for each image of three axes, or four.

        Raises
        ------
        UsageError
            When the file or a cube in it is compressed, when there is no cube, or when four axes have no names.
        DataError
            When the file is truncated or damaged, or something follows its last unit.
        """
        path = probe.path
        if not probe.head.startswith(_FIRST_CARD):
            raise UsageError(
                f"{path}", found="FITS in gzip", expected="plain FITS", remedy=f"run gunzip {path.name} first"
            )
        units = _units(path)
        _check_length(probe, units)
        if any(unit.is_compressed_cube for unit in units):
            raise UsageError(
                f"{path}", found="a compressed image", expected="plain images", remedy=f"run funpack {path.name} first"
            )
        cubes = [(number, unit) for number, unit in enumerate(units) if unit.is_cube]
        if not cubes:
            raise UsageError(
                f"{path}",
                found=f"no image of three or four axes in {len(units)} units",
                expected="a cube",
                remedy="move the file away",
            )
        names = _names([unit for _, unit in cubes])
        check_names(path, names)
        wanted = wanted_names(path, names, hints)
        return tuple(
            _source(path, unit, hints, dataset=name)
            for name, (_, unit) in zip(names, cubes, strict=True)
            if name in wanted
        )


def _units(path: Path) -> list[_Unit]:
    """Return every unit of a file; astropy stops in silence at one that is damaged, which the length then shows."""
    fits = library("astropy.io.fits", f"{path}")
    with translated(f"{path}"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with fits.open(path, memmap=False, lazy_load_hdus=False, disable_image_compression=True) as file:
            return [_unit(item) for item in file]


def _unit(item: Any) -> _Unit:
    info = item.fileinfo()
    return _Unit(item.header.copy(), info["datLoc"], info["datLoc"] + info["datSpan"], item.size)


def _check_length(probe: Probe, units: list[_Unit]) -> None:
    """Refuse a file whose last unit is cut, but for padding, or followed by what is no unit."""
    last = units[-1]
    if probe.size < last.start + last.data_bytes:
        raise DataError(
            f"{probe.path}",
            found=f"{probe.size} bytes",
            expected=f"{last.stop} bytes for {len(units)} units",
            remedy="the file is truncated: copy it again",
        )
    if probe.size > last.stop:
        raise DataError(
            f"{probe.path}",
            found=f"{probe.size - last.stop} bytes after unit {len(units) - 1} that are no header",
            expected="another unit or the end of the file",
            remedy="the file is damaged: copy it again",
        )


def _names(units: list[_Unit]) -> list[str]:
    """Return a name for each cube: EXTNAME, with EXTVER behind one that several share."""
    plain = [str(unit.header.get("EXTNAME", "")).strip().replace("/", "_") or IMAGE for unit in units]
    return [
        f"{name}_{unit.header.get('EXTVER', number)}" if plain.count(name) > 1 else name
        for number, (name, unit) in enumerate(zip(plain, units, strict=True), 1)
    ]


def _source(path: Path, unit: _Unit, hints: Hints, *, dataset: str) -> StoredSource:
    subject = f"{path}, image {dataset!r}"
    shape = unit.shape
    if len(shape) == _LARGEST_RANK and 1 in shape and len(hints.axes or "DHW") < _LARGEST_RANK:
        # Astronomers carry Stokes or frequency axes of one: leaving such an axis out moves no voxel.
        place = shape.index(1)
        shape = (*shape[:place], *shape[place + 1 :])
    order = resolve_axes(subject, ndim=len(shape), given=hints.axes, declared=None)
    values = fits_values(subject, unit.header)
    file = FlatFile(path, unit.start, shape=shape, dtype=values.stored, order=order)
    cube = RawCube(
        path,
        dataset,
        shape=shape,
        order=order,
        dtype=np.dtype(values.dtype),
        scratch_bytes=scratch_bytes(file, is_decoded=values.decode is not None),
        attributes=_attributes(unit.header),
    )
    return StoredSource(cube, file, values.decode)


def _attributes(header: Any) -> dict[str, Any]:
    """Return the keywords that say what the voxels mean: units, world coordinates, and what the author added."""
    return {
        card.keyword: card.value
        for card in header.cards
        if not card.keyword.startswith(_STRUCTURE)
        and card.keyword not in _TEXTS
        and isinstance(card.value, str | bool | int | float)
    }
