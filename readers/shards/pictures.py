"""Pictures: JPEG and PNG, whose headers are looked at here and which imagecodecs decodes.

A picture is decoded whole. What its header claims is compared with the limit of a frame first: a few bytes can claim
any extents.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod
from typing import Any

import imagecodecs
import numpy as np
import numpy.typing as npt

from voxload.errors import DataError
from voxload.files.limits import FRAME

_JPEG, _PNG = b"\xff\xd8", b"\x89PNG\r\n\x1a\n"
_FRAMES = frozenset({*range(0xC0, 0xC4), *range(0xC5, 0xC8), *range(0xC9, 0xCC), *range(0xCD, 0xD0)})
"""Markers of a frame's header, SOF0 to SOF15 less DHT, JPG and DAC. Source: ITU T.81, table B.1."""
_SCAN, _END = 0xDA, b"\xff\xd9"
_ALONE = frozenset({0x01, *range(0xD0, 0xD9)})
"""Markers without a length."""
_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}
"""By PNG's colour type; colours of a palette are looked up. Source: PNG (third edition), 11.2.1."""
_REMEDY = "take the sample out, or write the picture anew"


@dataclass(frozen=True, slots=True)
class PictureHeader:
    """What a picture says of itself."""

    kind: str
    height: int
    width: int
    channels: int
    """Once decoded: JPEGs are RGB, those in shades of gray, too; PNGs have those that are stored."""
    dtype: np.dtype[Any]
    scan: int = 0
    """Where the first scan of a JPEG begins."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the decoded array."""
        return (self.height, self.width) if self.channels == 1 else (self.height, self.width, self.channels)


def picture_header(data: bytes, subject: str) -> PictureHeader:
    """Return what the header of a picture says; raises DataError where there is none, or it claims too much."""
    try:
        if data.startswith(_JPEG):
            found = _of_jpeg(data, subject)
        elif data.startswith(_PNG):
            found = _of_png(data, subject)
        else:
            raise _odd(subject, "neither a JPEG nor a PNG")
    except (struct.error, IndexError) as error:
        raise _odd(subject, "a header that ends early") from error
    if found.height < 1 or found.width < 1:
        raise _odd(subject, f"{found.height} x {found.width} pixels")
    FRAME.check(subject, prod(found.shape) * found.dtype.itemsize, "a picture")
    return found


def picture(data: bytes, subject: str, known: PictureHeader | None = None) -> npt.NDArray[Any]:
    """Return all pixels of a picture, ``(H, W)`` or ``(H, W, C)``; raises DataError where some are missing.

    `known` is what `picture_header` said of these bytes, where it was asked.
    """
    known = picture_header(data, subject) if known is None else known
    try:
        if known.kind == "JPEG":
            if data.rfind(_END) < known.scan:  # libjpeg would make gray of what is missing
                raise _odd(subject, "a JPEG that ends early")
            found = imagecodecs.jpeg8_decode(data, outcolorspace="RGB")
        else:
            found = imagecodecs.png_decode(data)
    except (ValueError, RuntimeError) as error:  # all of imagecodecs' own are RuntimeErrors
        raise _odd(subject, str(error)) from error
    if (found.shape, found.dtype) != (known.shape, known.dtype):
        raise _odd(subject, f"{found.dtype} {found.shape}, where its header has {known.dtype} {known.shape}")
    return found


def _of_jpeg(data: bytes, subject: str) -> PictureHeader:
    """Walk through the segments to the first scan. Source: ITU T.81, B.1 and B.2."""
    place, found = 2, None
    while True:
        while data[place] == 0xFF and data[place + 1] == 0xFF:  # fill bytes
            place += 1
        if data[place] != 0xFF:
            raise _odd(subject, "no marker where a segment ends")
        marker = data[place + 1]
        place += 2
        if marker in _ALONE:
            continue
        (length,) = struct.unpack_from(">H", data, place)
        if marker in _FRAMES:
            depth, height, width, channels = struct.unpack_from(">BHHB", data, place + 2)
            if depth != 8 or channels not in (1, 3):
                raise _odd(subject, f"{channels} components of {depth} bits")
            found = PictureHeader("JPEG", height, width, 3, np.dtype(np.uint8))
        if marker == _SCAN:
            if found is None:
                raise _odd(subject, "a scan without a frame")
            return PictureHeader(found.kind, found.height, found.width, found.channels, found.dtype, scan=place)
        place += length


def _of_png(data: bytes, subject: str) -> PictureHeader:
    """Read the chunk IHDR, which comes first."""
    length, name, width, height, depth, colour = struct.unpack_from(">I4sIIBB", data, len(_PNG))
    channels = _CHANNELS.get(colour)
    if name != b"IHDR" or length != 13 or channels is None:
        raise _odd(subject, "no header behind the signature")
    return PictureHeader("PNG", height, width, channels, np.dtype(np.uint16 if depth == 16 else np.uint8))


def _odd(subject: str, found: str) -> DataError:
    return DataError(subject, found=found, expected="a whole JPEG of 8 bits, gray or YCbCr, or a PNG", remedy=_REMEDY)
