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

from voxload.convert.sources.binary.flat import FlatFile
from voxload.convert.sources.binary.inflater import inflated_head
from voxload.convert.sources.binary.stored import Decode, Scaling, StoredSource, scratch_bytes
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.libraries import library
from voxload.convert.sources.names import IMAGE, check_image_names, wanted_images
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import RawCube, Source
from voxload.errors import DataError, UsageError
from voxload.readers.axes import resolve_axes
from voxload.readers.faults import translated
from voxload.readers.protocol import Volume

_TYPES = {8: "u1", 16: ">i2", 32: ">i4", 64: ">i8", -32: ">f4", -64: ">f8"}
"""Stored type by BITPIX. Source: the FITS Standard 4.0, table 8."""


@dataclass(frozen=True, slots=True)
class FitsValues:
    """What is stored and what it stands for."""

    stored: np.dtype[Any]
    """Stored type, big-endian."""
    dtype: np.dtype[Any]
    """Type of the voxels, in native byte order."""
    decode: Decode | None
    """What makes voxels of stored numbers; None where they are the voxels."""


def fits_values(subject: str, header: Any) -> FitsValues:
    """Return how the voxels of an image are stored.

    Integers whose BZERO is half their range are the unsigned integers (or, of bytes, the signed ones) that FITS has
    no type for, and stay integers: the FITS Standard 4.0, table 11. Any other BSCALE or BZERO gives floats. A voxel
    that holds BLANK has no value.

    Raises
    ------
    DataError
        When BITPIX is no type, or a scaling no number; while reading, on a voxel without a value.
    """
    if header["BITPIX"] not in _TYPES:
        raise DataError(subject, found=f"BITPIX {header['BITPIX']}", expected=f"one of {sorted(_TYPES)}")
    stored = np.dtype(_TYPES[header["BITPIX"]])
    slope, zero = header.get("BSCALE", 1), header.get("BZERO", 0)
    if not all(type(value) in (int, float) and np.isfinite(value) for value in (slope, zero)) or slope == 0:
        raise DataError(subject, found=f"BSCALE {slope!r}, BZERO {zero!r}", expected="numbers, BSCALE other than 0")
    blank = header.get("BLANK") if stored.kind in "iu" else None
    scaling = Scaling(float(slope), float(zero))
    if scaling.is_identity:
        decode = None if blank is None else _Decoder(subject, blank, _copy)
        return FitsValues(stored, stored.newbyteorder("="), decode)
    if slope == 1 and stored.kind in "iu" and zero == _offset(stored):
        turned = np.dtype(f"{'u' if stored.kind == 'i' else 'i'}{stored.itemsize}")
        return FitsValues(stored, turned, _Decoder(subject, blank, _flip))
    return FitsValues(stored, scaling.dtype(stored), _Decoder(subject, blank, scaling))


@dataclass(frozen=True, slots=True)
class _Decoder:
    """A decoding that first refuses voxels without a value."""

    subject: str
    """What error messages name."""
    blank: int | None
    """The stored number that stands for no value."""
    then: Decode
    """What makes voxels of the others."""

    def __call__(self, stored: Volume, out: Volume) -> None:
        """Fill `out`; raises DataError on a voxel that holds BLANK."""
        missing = 0 if self.blank is None else int(np.count_nonzero(stored == self.blank))
        if missing:
            raise DataError(
                self.subject,
                found=f"{missing} voxels of one plane without a value (BLANK = {self.blank})",
                expected="a value for every voxel",
                remedy="fill them and leave the BLANK keyword out",
            )
        self.then(stored, out)


def _offset(stored: np.dtype[Any]) -> int:
    """Return the BZERO by which FITS writes integers of the other signedness."""
    half: int = 2 ** (8 * stored.itemsize - 1)
    return half if stored.kind == "i" else -half


def _flip(stored: Volume, out: Volume) -> None:
    """Add or subtract half the range, which turns the highest bit and no other."""
    half = np.asarray(2 ** (8 * stored.itemsize - 1), dtype=f"u{stored.itemsize}")
    np.bitwise_xor(stored.view(half.dtype), half, out=out.view(half.dtype))


def _copy(stored: Volume, out: Volume) -> None:
    out[...] = stored


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
        check_image_names(path, names)
        wanted = wanted_images(path, names, hints)
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
