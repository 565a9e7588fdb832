"""Members of a zip archive that are stored plainly: where their bytes lie, and whether their checksum fits.

Source: PKWARE APPNOTE.TXT, section 4.3.7, the local file header.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from zipfile import ZipInfo

from voxload.convert.sources.probe import Probe
from voxload.convert.sources.streams import PIECE_BYTES
from voxload.errors import DataError
from voxload.readers.faults import translated
from voxload.regular import open_regular

_SIGNATURE = b"PK\x03\x04"
_LOCAL = struct.Struct("<4s22xHH")


def first_member(probe: Probe) -> str:
    """Return the name of the first member of a zip archive; empty for other files."""
    if not probe.head.startswith(_SIGNATURE) or len(probe.head) < _LOCAL.size:
        return ""
    _, length, _ = _LOCAL.unpack_from(probe.head)
    return probe.head[_LOCAL.size : _LOCAL.size + length].decode("utf-8", "replace")


def member_offset(path: Path, info: ZipInfo) -> int:
    """Return where in the file the bytes of a plain member begin; raises DataError when its header is not there."""
    with translated(f"{path}"), open_regular(path) as file:
        file.seek(info.header_offset)
        head = file.read(_LOCAL.size)
    if len(head) < _LOCAL.size or not head.startswith(_SIGNATURE):
        raise DataError(f"{path}", found=f"no header of {info.filename!r} at byte {info.header_offset}", expected="one")
    _, name_length, extra_length = _LOCAL.unpack(head)
    return info.header_offset + _LOCAL.size + int(name_length) + int(extra_length)


def check_member(path: Path, info: ZipInfo, start: int) -> None:
    """Read a plain member and compare its CRC-32; raises DataError when it does not fit."""
    crc, left = 0, info.file_size
    with translated(f"{path}"), open_regular(path) as file:
        file.seek(start)
        while piece := file.read(min(PIECE_BYTES, left)):
            crc, left = zlib.crc32(piece, crc), left - len(piece)
    if crc != info.CRC:
        raise DataError(
            f"{path}, member {info.filename!r}",
            found=f"data with CRC-32 {crc:08x}",
            expected=f"{info.CRC:08x}, as the archive says",
            remedy="the archive is damaged: copy it again",
        )
