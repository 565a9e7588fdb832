"""Frames: the pixels of DICOM slices, read by position, or by pydicom's decoders where they are compressed."""

from __future__ import annotations

from typing import Any

import numpy as np

from voxload.convert.sources.binary.flat import fill_from
from voxload.convert.sources.libraries import library
from voxload.convert.sources.medicine.slices import Slice
from voxload.errors import DataError
from voxload.files.regular import open_regular
from voxload.readers.faults import translated
from voxload.readers.protocol import Volume

COPIES = 4
"""Planes that decoding a compressed one takes beside twice its stream."""


def read_frame(piece: Slice, rows: slice, columns: slice) -> Volume:
    """Return some pixels of a slice, (rows, columns), as they are stored, in the byte order of this machine.

    Raises DataError where the file does not hold what its header said, StorageError of a storage that refuses.
    """
    with translated(f"{piece.path}"):
        found = _plain(piece, rows) if piece.is_plain else _decoded(piece)[rows]
        unused = piece.dtype.itemsize * 8 - piece.bits
        if unused and piece.is_plain:  # a sign may be in the middle of the bits, and overlays above it
            np.left_shift(found, unused, out=found)
            np.right_shift(found, unused, out=found)
        return found[:, columns]


def _plain(piece: Slice, rows: slice) -> Volume:
    """Read whole rows by their position."""
    width = piece.shape[1]
    found = np.empty((rows.stop - rows.start, width), piece.dtype)
    with open_regular(piece.path, buffering=0) as file:
        start = piece.offset + rows.start * width * piece.dtype.itemsize
        fill_from(piece.path, file.fileno(), found.data.cast("B"), start)
    return found if found.dtype.isnative else found.astype(found.dtype.newbyteorder("="))


def _decoded(piece: Slice) -> Volume:
    """Decode a compressed slice whole, once its own stream claims no other extents than the header."""
    pixels = library("pydicom.pixels", f"{piece.path}")
    height, width = piece.shape
    options: dict[str, Any] = {
        "rows": height,
        "columns": width,
        "number_of_frames": 1,
        "samples_per_pixel": 1,
        "bits_allocated": piece.dtype.itemsize * 8,
        "bits_stored": piece.bits,
        "pixel_representation": int(piece.dtype.kind == "i"),
        "photometric_interpretation": "MONOCHROME2",
        "pixel_keyword": "PixelData",
    }
    with open_regular(piece.path) as file:
        file.seek(piece.offset)
        stream = library("pydicom.encaps", f"{piece.path}").get_frame(file, 0, number_of_frames=1)
        claimed = stream_extents(stream)
        if claimed != (height, width, 1) and piece.syntax != _RUNS:
            raise DataError(
                f"{piece.path}",
                found=f"a stream of (rows, columns, samples) {claimed}",
                expected=f"{(height, width, 1)}, as the header says",
                remedy="copy it again: it is damaged",
            )
        file.seek(piece.offset)
        found, _ = pixels.get_decoder(piece.syntax).as_array(file, index=0, **options)
    if found.shape != piece.shape or found.dtype != piece.dtype.newbyteorder("="):
        raise DataError(
            f"{piece.path}",
            found=f"decoded pixels {found.shape} of {found.dtype}",
            expected=f"{piece.shape} of {piece.dtype.newbyteorder('=')}",
        )
    plane: Volume = found
    return plane


_RUNS = "1.2.840.10008.1.2.5"
"""Transfer syntax of run lengths, whose stream claims no extents: it gives the pixels of the header or none."""
_JPEG, _JPEG2000 = b"\xff\xd8", b"\xff\x4f\xff\x51"
_FRAMES = frozenset({*range(0xC0, 0xD0), 0xF7}) - {0xC4, 0xC8, 0xCC}
"""Markers of JPEG and JPEG-LS behind which the extents stand. Source: ITU-T T.81, table B.1; ITU-T T.87, C.1.1."""


def stream_extents(stream: bytes | bytearray) -> tuple[int, int, int] | None:
    """Return the rows, columns and samples that a JPEG or JPEG 2000 stream claims; None where it claims none.

    >>> stream_extents(bytes.fromhex("ffd8 ffc3 000b 10 0200 0100 01 000000"))
    (512, 256, 1)
    """
    if stream.startswith(_JPEG2000):  # SIZ, the first segment. Source: ITU-T T.800, A.5.1
        x, y, left, top = (int.from_bytes(stream[place : place + 4], "big") for place in (8, 12, 16, 20))
        return y - top, x - left, int.from_bytes(stream[40:42], "big")
    if not stream.startswith(_JPEG):
        return None
    place = 2
    while place + 10 <= len(stream) and stream[place] == 0xFF:
        marker = stream[place + 1]
        if marker in _FRAMES:
            high, wide = (int.from_bytes(stream[place + at : place + at + 2], "big") for at in (5, 7))
            return high, wide, stream[place + 9]
        place += 1 if marker == 0xFF else 2 + int.from_bytes(stream[place + 2 : place + 4], "big")
    return None
