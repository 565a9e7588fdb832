"""Header: what a DICOM file says of itself, not yet looked at.

pydicom parses it, from a file of which it can take a bounded part only; values are read from the bytes that it finds,
so that a damaged one is an error and not a warning. Source: DICOM PS3.5, 7 (elements) and 10 (transfer syntaxes);
PS3.10, 7 (file format).
"""

from __future__ import annotations

import struct
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from voxload.convert.sources.libraries import library
from voxload.errors import DataError, UsageError
from voxload.files.regular import open_regular
from voxload.readers.faults import translated

IMPLICIT, BIG = "1.2.840.10008.1.2", "1.2.840.10008.1.2.2"
"""Transfer syntaxes without types in the header, and of big-endian numbers."""
PLAIN = frozenset({IMPLICIT, "1.2.840.10008.1.2.1", BIG})
"""Transfer syntaxes whose pixels lie in the file as they are; all others have them in a stream of their own."""
_TAGS = {
    "class": 0x0008_0016,
    "modality": 0x0008_0060,
    "series": 0x0020_000E,
    "position": 0x0020_0032,
    "orientation": 0x0020_0037,
    "frame": 0x0020_0052,
    "samples": 0x0028_0002,
    "photometric": 0x0028_0004,
    "frames": 0x0028_0008,
    "rows": 0x0028_0010,
    "columns": 0x0028_0011,
    "pixel_spacing": 0x0028_0030,
    "allocated": 0x0028_0100,
    "stored": 0x0028_0101,
    "high": 0x0028_0102,
    "signed": 0x0028_0103,
    "intercept": 0x0028_1052,
    "slope": 0x0028_1053,
    "table": 0x0028_3000,
}
"""Elements that are looked at, all others are passed over; Source: PS3.6."""
_NAMES = {"series": "SeriesInstanceUID", "position": "ImagePositionPatient", "orientation": "ImageOrientationPatient"}
_NAMES |= {"pixel_spacing": "PixelSpacing", "rows": "Rows", "columns": "Columns", "allocated": "BitsAllocated"}
"""What the standard calls those that must be there, for messages."""
_PIXELS, _FLOATS = 0x7FE0_0010, (0x7FE0_0008, 0x7FE0_0009)
_LAST_GROUP, _GROUP_OF_FRAMES, _GROUP_OF_FOLDERS = 0x0028, 0x5200, 0x0004
"""The last group that is looked at; those of the places of many frames, and of a folder's table of contents."""
_MOST_HEADER = 2**22
"""Bytes that are read of a header, those passed over not counted; most take a few thousand."""
_ROOT = "1.2.840.10008."
"""With which the standard's own identifiers begin."""
_SHOWN = 80
"""Characters of a message of pydicom's, which may go on with the bytes of a file."""
_MOST = 1e30
"""Largest number that is one: with it, and not with ones of float64's reach, can be reckoned."""
_PLAIN_HEAD, _TYPED_HEAD = 8, 12
"""Bytes of an element before its value, without a type and with one."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a DICOM file says of itself, not yet looked at."""

    path: Path
    """The file."""
    syntax: str
    """Transfer syntax."""
    values: dict[str, bytes]
    """Bytes of the elements that are there, by the names of this module."""
    is_big: bool
    """Whether its numbers are big-endian."""
    pixels: tuple[str, int, int] | None
    """Type, first byte and length of the pixels; None where they were not come to."""

    @property
    def series(self) -> str:
        """SeriesInstanceUID; empty without."""
        return self.text("series")

    def text(self, name: str) -> str:
        """Return a text without its padding; empty where there is none."""
        return self.values.get(name, b"").decode("latin-1").strip(" \0")

    def integer(self, name: str, default: int | None = None) -> int:
        """Return an unsigned number of two bytes."""
        found = self.values.get(name, b"")
        if not found and default is not None:
            return default
        if len(found) != 2:
            raise self.wrong(
                name, found=f"{len(found)} bytes" if found else "nothing", expected="a number of two bytes"
            )
        return int.from_bytes(found, "big" if self.is_big else "little")

    def numbers(self, name: str, count: int, default: float | None = None) -> tuple[float, ...]:
        """Return finite numbers that are written as text."""
        text = self.text(name)
        if not text and default is not None:
            return (default,) * count
        try:
            found = tuple(map(float, text.split("\\")))
        except ValueError:
            found = ()
        if len(found) != count or "_" in text or not all(abs(value) <= _MOST for value in found):
            raise self.wrong(name, found=repr(text) if text else "nothing", expected=f"{count} numbers")
        return found

    def wrong(self, name: str, *, found: str, expected: str) -> DataError:
        """Return the error that an element is not what it should be."""
        return DataError(f"{self.path}", found=f"{_NAMES.get(name, name)}: {found}", expected=expected)


def read_header(path: Path) -> Header | None:
    """Return the header of a DICOM file; None where it is no image but a report, a plan or a table of contents.

    Raises
    ------
    DataError
        When it is damaged.
    UsageError
        When its transfer syntax deflates all of the file.
    """
    pydicom = library("pydicom", f"{path}")
    library("pydicom.pixels", f"{path}")
    with translated(f"{path}"), open_regular(path) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about texts that nothing here looks at
        bounded: Any = _Bounded(file, path)
        try:
            found = pydicom.filereader.read_partial(bounded, _is_behind, specific_tags=list(_TAGS.values()))
        except (pydicom.errors.InvalidDicomError, pydicom.errors.BytesLengthException) as error:
            found = str(error).splitlines()[0][:_SHOWN]
            raise DataError(f"{path}", found=found, expected="a DICOM file", remedy="copy it again") from error
        meta = found.file_meta
        syntax, kind = str(meta.get("TransferSyntaxUID") or ""), str(meta.get("MediaStorageSOPClassUID") or "")
        raw = {name: found.get_item(tag) for name, tag in _TAGS.items() if tag in found}
        values = {name: item.value if isinstance(item.value, bytes) else b"" for name, item in raw.items()}
        if not values.get("rows") and _is_other(pydicom.uid.UID(kind)):
            return None
        if not pydicom.uid.UID(syntax).is_valid:
            raise DataError(
                f"{path}", found=f"TransferSyntaxUID {syntax!r}", expected="one", remedy="copy it again: it is damaged"
            )
        is_implicit, is_big = syntax == IMPLICIT, syntax == BIG
        pydicom.filereader.read_dataset(bounded, is_implicit, not is_big, stop_when=_is_last, specific_tags=[_PIXELS])
        start = bounded.tell()
        pixels = _pixels(bounded.read(_TYPED_HEAD), start, is_implicit=is_implicit, is_big=is_big)
        return Header(path, syntax, values, is_big, pixels)


def _is_other(kind: Any) -> bool:
    """Tell whether an object's class says that it is no image: one of the standard's others, or a maker's own.

    What has the standard's root and is none of its classes is damaged.
    """
    is_known = kind.name != kind or not kind.startswith(_ROOT)
    return bool(kind.is_valid and is_known and "Image Storage" not in kind.name)


class _Bounded:
    """A file of which so much can be read, whatever lengths it claims."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file, self._path, self._taken = file, path, 0

    def read(self, size: int = -1) -> bytes:
        if size < 0:  # which pydicom does to inflate all of it at once
            raise UsageError(
                f"{self._path}",
                found="a transfer syntax that deflates the whole file",
                expected="one that compresses pixels alone, or nothing",
                remedy="write it again, such as with dcmconv +te of DCMTK",
            )
        self._taken += size
        if self._taken > _MOST_HEADER:
            raise DataError(
                f"{self._path}",
                found=f"a header of more than {_MOST_HEADER} bytes",
                expected="fewer",
                remedy="copy it again if it is damaged",
            )
        return self._file.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


def _is_behind(tag: Any, _kind: str | None, _length: int) -> bool:
    """Tell whether an element is behind all that is looked at, or the first of a table of contents."""
    group = int(tag) >> 16
    return group > _LAST_GROUP or group == _GROUP_OF_FOLDERS


def _is_last(tag: Any, _kind: str | None, _length: int) -> bool:
    """Tell whether an element is the pixels, or the places of frames, of which none is a slice."""
    return int(tag) in (_PIXELS, *_FLOATS) or int(tag) >> 16 == _GROUP_OF_FRAMES


def _pixels(head: bytes, start: int, *, is_implicit: bool, is_big: bool) -> tuple[str, int, int] | None:
    """Return type, place and length of the pixels, whose element begins with `head` at `start`."""
    order, size = ">" if is_big else "<", _PLAIN_HEAD if is_implicit else _TYPED_HEAD
    if len(head) < size:
        return None
    group, element = struct.unpack(f"{order}HH", head[:4])
    tag = group << 16 | element
    if tag not in (_PIXELS, *_FLOATS):
        return None
    kind = "float" if tag in _FLOATS else "OW" if is_implicit else head[4:6].decode("latin-1")
    (length,) = struct.unpack(f"{order}I", head[size - 4 : size])
    return kind, start + size, length
