"""Raw targets: sound cubes in the formats that only a conversion reads, and which of their bytes a checksum covers."""

from __future__ import annotations

import gzip
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import google_crc32c
import nibabel
import nrrd
import numpy as np
from astropy.io import fits

from tests.support.fuzzing.targets import VALUES, Region, SoundFile, Target

_GZIP_HEADER = 10
"""Bytes of a gzip member before its deflated data; a checksum over all that is inflated ends it (RFC 1952)."""


def make_raw_targets() -> list[Target]:
    """Make one cube of every format; call it in a process of its own, as `make_targets`."""
    return list(_targets())


def _targets() -> Iterator[Target]:
    with tempfile.TemporaryDirectory() as name:
        for kind, (file, write, regions) in _FORMATS.items():
            path = Path(name, file)
            write(path)
            data = path.read_bytes()
            yield Target(kind, file, "", (SoundFile(file, data, tuple(regions(data))),))


def _npz(path: Path) -> None:
    np.savez(path, x=VALUES)


def _npz_compressed(path: Path) -> None:
    np.savez_compressed(path, x=VALUES)


def _nifti(path: Path) -> None:
    image = nibabel.nifti1.Nifti1Image(VALUES.transpose(2, 1, 0), np.eye(4))  # type: ignore[no-untyped-call]
    nibabel.save(image, path)


def _nrrd(path: Path) -> None:
    nrrd.write(str(path), VALUES, {"encoding": "gzip" if "gzip" in path.name else "raw"}, index_order="C")


def _metaimage(path: Path) -> None:
    size = " ".join(map(str, reversed(VALUES.shape)))
    words = ("ObjectType = Image", "NDims = 3", f"DimSize = {size}", "BinaryDataByteOrderMSB = False",
             "ElementType = MET_SHORT", "ElementDataFile = LOCAL")  # fmt: skip
    path.write_bytes("\n".join(words).encode() + b"\n" + VALUES.tobytes())


def _fits(path: Path) -> None:
    fits.PrimaryHDU(VALUES).writeto(path)


def _tfrecord(path: Path) -> None:
    """CosmoFlow's form of 2018: cubes of float64, in records that checksums cover (TensorFlow, record_writer.cc)."""
    voxels = _field(1, _field(1, VALUES.astype("<f8").tobytes()))
    labels = _field(1, _field(1, np.array([0.3, 0.8]).tobytes()))
    entries = [_field(1, b"data_raw") + _field(2, voxels), _field(1, b"label_raw") + _field(2, labels)]
    record = _field(1, b"".join(_field(1, entry) for entry in entries))
    length = struct.pack("<Q", len(record))
    content = length + _masked_crc(length) + record + _masked_crc(record)
    path.write_bytes(gzip.compress(content, mtime=0) if "gzip" in path.name else content)


def _field(number: int, content: bytes) -> bytes:
    """Encode a field of bytes (Protocol Buffers, wire type 2)."""
    length, size = b"", len(content)
    while size > 0x7F:
        length, size = length + bytes([size & 0x7F | 0x80]), size >> 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content


def _masked_crc(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32)


def _uncovered(data: bytes) -> Iterator[Region]:
    """Yield a header, then voxels."""
    start = len(data) - VALUES.nbytes
    yield Region(0, start, is_covered=False, is_metadata=True)
    yield Region(start, len(data), is_covered=False, is_metadata=False)


def _padded(data: bytes) -> Iterator[Region]:
    """Yield a block of header, then voxels (FITS standard 4.0, section 3)."""
    yield Region(0, 2880, is_covered=False, is_metadata=True)
    yield Region(2880, len(data), is_covered=False, is_metadata=False)


def _zipped(data: bytes) -> Iterator[Region]:
    """Yield a member: a header says what it is, a checksum covers it, the directory at the end says where it is."""
    start = 30 + sum(struct.unpack_from("<HH", data, 26))
    stop = data.index(b"PK\1\2")
    yield Region(0, start, is_covered=False, is_metadata=True)
    yield Region(start, stop, is_covered=True, is_metadata=False)
    yield Region(stop, len(data), is_covered=False, is_metadata=True)


def _gzipped(data: bytes) -> Iterator[Region]:
    """Yield a header of text, where there is one, and a gzip member."""
    start = data.index(b"\x1f\x8b") + _GZIP_HEADER
    yield Region(0, start, is_covered=False, is_metadata=True)
    yield Region(start, len(data), is_covered=True, is_metadata=False)


def _recorded(data: bytes) -> Iterator[Region]:
    """Yield the length of a record, and the record."""
    yield Region(0, 12, is_covered=True, is_metadata=True)
    yield Region(12, len(data), is_covered=True, is_metadata=False)


_Format = tuple[str, Callable[[Path], None], Callable[[bytes], Iterator[Region]]]
_FORMATS: Mapping[str, _Format] = {
    "npz": ("x.npz", _npz, _zipped),
    "npz compressed": ("c.npz", _npz_compressed, _zipped),
    "NIfTI": ("x.nii", _nifti, _uncovered),
    "NIfTI gzip": ("x.nii.gz", _nifti, _gzipped),
    "NRRD": ("x.nrrd", _nrrd, _uncovered),
    "NRRD gzip": ("gzip.nrrd", _nrrd, _gzipped),
    "MetaImage": ("x.mha", _metaimage, _uncovered),
    "FITS": ("x.fits", _fits, _padded),
    "TFRecord": ("x.tfrecord", _tfrecord, _recorded),
    "TFRecord gzip": ("gzip.tfrecord", _tfrecord, _gzipped),
}
"""By name: a file's name, what writes it, and the regions of its bytes."""
