"""FitsValues: how the numbers of a FITS image become voxels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from voxload.convert.sources.scaling import Scaling
from voxload.convert.sources.stored import Decode
from voxload.errors import DataError
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
