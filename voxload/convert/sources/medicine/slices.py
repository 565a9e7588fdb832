"""Slice: one DICOM file whose header is sound: where its pixels lie in the file, and in the patient.

Source: DICOM PS3.3, C.7.6.2 (Image Plane), C.7.6.3 (Image Pixel) and C.11.1 (Modality LUT); PS3.5, 8 (encoding of
pixels).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from voxload.convert.sources.binary.stored import Scaling
from voxload.convert.sources.libraries import library
from voxload.convert.sources.medicine.headers import PLAIN, Header
from voxload.errors import DataError, UsageError
from voxload.files.limits import FRAME
from voxload.readers.faults import translated

_UNDEFINED = 0xFFFF_FFFF
_TABLES = 2**16
"""Bytes that a compressed slice may take beside twice its pixels."""


@dataclass(frozen=True, slots=True)
class Slice:
    """One slice, whose header is sound."""

    path: Path
    """The file."""
    syntax: str
    """Transfer syntax."""
    offset: int
    """First byte of the pixels, or of the stream that holds them."""
    encoded_bytes: int
    """Bytes from there to the end of the file, of pixels that are compressed; of others, the pixels' own."""
    shape: tuple[int, int]
    """Rows and columns."""
    dtype: np.dtype[Any]
    """Stored type, with the stored byte order."""
    bits: int
    """Bits of a pixel that are used, the lowest ones; of what the others hold nothing is known."""
    scaling: Scaling
    """What stored numbers stand for."""
    position: tuple[float, ...]
    """Centre of the first pixel, LPS in mm."""
    orientation: tuple[float, ...]
    """Directions in which the columns of a row, and the rows, follow each other."""
    pixel_spacing: tuple[float, ...]
    """mm between rows, and between columns."""
    frame: str
    """What positions are counted in; empty without a name."""

    @property
    def is_plain(self) -> bool:
        """Whether the pixels lie in the file as they are."""
        return self.syntax in PLAIN

    @property
    def plane_bytes(self) -> int:
        """Bytes of the pixels, decoded."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize

    @classmethod
    def of(cls, header: Header) -> Slice:
        """Return the slice of a header.

        Raises
        ------
        DataError
            When it lacks what a slice has, or claims more pixels than the file holds.
        UsageError
            When it is no slice of numbers: colour, frames, or values by a table.
        """
        _check_kind(header)
        _check_decoder(header)
        allocated, is_signed = header.integer("allocated"), bool(header.integer("signed", 0))
        bits = header.integer("stored", allocated)
        if allocated not in (8, 16, 32) or not 1 <= bits <= allocated or header.integer("high", bits - 1) != bits - 1:
            raise UsageError(
                f"{header.path}",
                found=f"{bits} bits stored of {allocated}, the highest at {header.integer('high', bits - 1)}",
                expected="the lowest ones of 8, 16 or 32",
                remedy="write it again with an image program",
            )
        dtype = np.dtype(f"{'>' if header.is_big else '<'}{'i' if is_signed else 'u'}{allocated // 8}")
        shape = (header.integer("rows"), header.integer("columns"))
        if min(shape) < 1:
            raise DataError(f"{header.path}", found=f"{shape[0]} rows of {shape[1]}", expected="1 or more")
        (slope,), (intercept,) = header.numbers("slope", 1, 1.0), header.numbers("intercept", 1, 0.0)
        if slope == 0:
            raise DataError(f"{header.path}", found="RescaleSlope 0, by which all pixels are one", expected="another")
        offset, size = _place(header, shape, dtype)
        return cls(
            header.path,
            header.syntax,
            offset,
            size,
            shape,
            dtype,
            bits,
            Scaling(slope, intercept),
            header.numbers("position", 3),
            header.numbers("orientation", 6),
            header.numbers("pixel_spacing", 2),
            header.text("frame"),
        )


def _check_kind(header: Header) -> None:
    """Refuse what is no plane of one number a pixel."""
    (frames,) = header.numbers("frames", 1, 1.0)
    samples, photometric = header.integer("samples", 1), header.text("photometric") or "MONOCHROME2"
    found, expected = "", "an image of one frame a file"
    if frames != 1 or (header.pixels is None and _has_frames(header)):
        found = f"{frames:g} frames in one file"
    elif samples != 1 or photometric not in ("MONOCHROME1", "MONOCHROME2"):
        found, expected = f"colour, {samples} samples a pixel, {photometric}", "one number a pixel"
    elif "table" in header.values:
        found, expected = "values by a table (ModalityLUTSequence)", "RescaleSlope and RescaleIntercept, or neither"
    elif header.pixels is not None and header.pixels[0] == "float":
        found, expected = "pixels that are floats", "integers (PixelData)"
    if found:
        remedy = "move it away, or convert it to NIfTI, NRRD or MetaImage with an image program first"
        raise UsageError(f"{header.path}", found=found, expected=expected, remedy=remedy)


def _check_decoder(header: Header) -> None:
    """Refuse a slice whose compression nothing installed decodes."""
    if header.syntax in PLAIN:
        return
    uid = library("pydicom.uid", f"{header.path}").UID(header.syntax)
    try:
        decoder = library("pydicom.pixels", f"{header.path}").get_decoder(uid)
        missing = "" if decoder.is_available else "; or ".join(decoder.missing_dependencies)
    except NotImplementedError:
        missing = "pydicom has no decoder for it"
    if missing:
        raise UsageError(
            f"{header.path}",
            found=f"pixels in {uid.name}",
            expected="a transfer syntax that can be decoded here",
            remedy=f"install what decodes it ({missing}), or write the files without compression",
        )


def _has_frames(header: Header) -> bool:
    """Tell whether the header ends in the group of frames, where the place of each of them is."""
    return not header.values.get("position") and bool(header.values.get("frames"))


def _place(header: Header, shape: tuple[int, int], dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return where the pixels begin, and how many bytes they are; nothing was read of them."""
    expected = shape[0] * shape[1] * dtype.itemsize
    if header.pixels is None:
        raise DataError(f"{header.path}", found="no pixels", expected=f"{expected} bytes", remedy="copy it again")
    kind, offset, length = header.pixels
    with translated(f"{header.path}"):
        there = header.path.stat().st_size - offset
    what = f"{shape[0]} rows of {shape[1]} pixels of {dtype.itemsize} bytes"
    if header.syntax in PLAIN:
        if length not in (expected, expected + expected % 2) or there < expected:
            raise DataError(
                f"{header.path}",
                found=f"{min(length, there)} bytes of pixels",
                expected=f"{expected} for {what}",
                remedy="copy it again: it is cut short, or its header is damaged",
            )
        if header.is_big and dtype.itemsize == 1 and kind != "OB":
            raise UsageError(
                f"{header.path}", found="bytes in big-endian words", expected="bytes", remedy="write it little-endian"
            )
        return offset, expected
    FRAME.check(f"{header.path}", expected, "a compressed slice")
    if length != _UNDEFINED or there > 2 * expected + _TABLES:
        raise DataError(
            f"{header.path}",
            found=f"{there} bytes of compressed pixels",
            expected=f"fragments, of less than twice the {expected} bytes for {what}",
            remedy="copy it again: its header is damaged",
        )
    return offset, there
