"""Block files: one block a file, 256 bytes of header and the bytes as stored.

=========  ==========================================================================================================
bytes      what, little-endian
=========  ==========================================================================================================
0 - 7      magic; its last byte is the version
8 - 23     the key's digest
24 - 55    name of the type, such as ``<int16``, and zeros
56 - 59    number of axes, at most 8
60 - 123   shape, eight bytes an axis
124 - 127  number of the codec
128 - 143  bytes as stored, bytes of the block
144 - 147  checksum of digest, form and bytes, as `voxload.cache.form` says
148 - 151  CRC-32C of all before
152 - 239  zeros
240 - 255  the tier that owns the file; not summed: it changes when another tier adopts the block
=========  ==========================================================================================================

Files appear by rename, so one is there whole or not at all. They are not flushed to the device: what a power cut leaves
of one does not agree with its checksum, and the block is still where it came from.

A checksum proves nothing against who makes one, so files are opened by `voxload.files.private`: only those of this
user's.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from voxload.cache.codec import Codec
from voxload.cache.form import Form, bytes_of, checksum, type_name
from voxload.cache.protocol import Answer, BlockKey
from voxload.errors import UsageError
from voxload.files.private import PrivateFolder
from voxload.readers.protocol import Volume
from voxload.readers.scratch import Bytes, Scratch

HEADER_BYTES = 256
OWNER_AT = 240
OWNER_BYTES = 16
SUFFIX = ".block"
_MAGIC = b"voxlblk\x01"
_HEADER = struct.Struct("<8s16s32sI64sIQQI")
_SHAPE = struct.Struct("<8Q")
_ONE_CALL = 2**30
"""Linux moves at most 2 GiB in one call."""
_bytes = Scratch()
"""Each thread's buffer for a block as stored, where that is not what its taker wants."""


@dataclass(frozen=True, slots=True)
class Found:
    """What came of reading a block file."""

    answer: Answer
    inode: int = 0
    """Which file it was: another one may have its name by now. 0 where there was none."""


def name_of(key: BlockKey) -> str:
    """Return the name of a block's file in its tier's folder: by the identity of the data, then by digest."""
    data = hashlib.blake2b(key.data.encode(errors="surrogateescape"), digest_size=8).hexdigest()
    digest = key.digest.hex()
    return f"{data}/{digest[:2]}/{digest}{SUFFIX}"


def path_of(folder: Path, key: BlockKey) -> Path:
    """Return the path of a block's file."""
    return folder / name_of(key)


def header_of(digest: bytes, block: Volume, form: Form, owner: bytes) -> bytes:
    """Return the header of a block's file; raises UsageError for what has no header."""
    name = type_name(block.dtype).encode()
    if block.ndim > 8 or len(name) > 32:
        raise UsageError("block", found=f"{name.decode()} of {block.ndim} axes", expected="at most 8 axes")
    shape = _SHAPE.pack(*block.shape, *(0,) * (8 - block.ndim))
    fields = (digest, name, block.ndim, shape, form.codec.number, form.stored, form.raw, form.crc)
    head = _HEADER.pack(_MAGIC, *fields)
    summed = head + checksum(head).to_bytes(4, "little")
    return summed.ljust(OWNER_AT, b"\0") + owner


def form_of(header: bytes, digest: bytes) -> Form | None:
    """Return the form that a header tells of; None where the header is damaged or another block's."""
    size = _HEADER.size
    if len(header) != HEADER_BYTES or header[size : size + 4] != checksum(header[:size]).to_bytes(4, "little"):
        return None
    magic, found, name, axes, shape, number, stored, raw, crc = _HEADER.unpack_from(header)
    codec = Codec.numbered(number)
    if magic != _MAGIC or found != digest or codec is None:
        return None
    kind = checksum(f"{name.rstrip(bytes(1)).decode()} {_SHAPE.unpack(shape)[:axes]}".encode())
    return Form(kind, codec, stored, raw, crc)


def write_whole(descriptor: int, parts: Sequence[Bytes | bytes]) -> None:
    """Write all bytes of all parts into a file, from its beginning.

    Raises OSError where the system does not take them.
    """
    at = 0
    for part in parts:
        view = memoryview(part) if isinstance(part, bytes) else part.data
        while view:
            written = os.pwrite(descriptor, view[:_ONE_CALL], at)
            at, view = at + written, view[written:]


def read_block(folder: PrivateFolder, name: str, digest: bytes, out: Volume) -> Found:
    """Fill `out` with the block of a file; bytes stored as they are go right where they are wanted.

    Raises OSError where the system does not give them, and ForeignError where the file is not this user's.
    """
    try:
        descriptor, status = folder.file(name, os.O_RDONLY)
    except FileNotFoundError:
        return Found(Answer.ABSENT)
    try:
        header = bytearray(HEADER_BYTES)
        stored = status.st_size - HEADER_BYTES
        is_direct = out.flags.c_contiguous and stored == out.nbytes
        if not is_direct and stored > 2 * out.nbytes:
            return Found(_odd(os.pread(descriptor, HEADER_BYTES, 0), digest, stored), status.st_ino)
        data = bytes_of(out) if is_direct else _bytes.stored(max(0, stored))
        if _read(descriptor, header, data) != status.st_size:
            return Found(Answer.WRONG, status.st_ino)
    finally:
        os.close(descriptor)
    form = form_of(bytes(header), digest)
    if form is None or form.stored != stored:
        return Found(Answer.WRONG, status.st_ino)
    if not form.suits(out):
        return Found(Answer.ABSENT, status.st_ino)
    return Found(Answer.GOT if form.takes(digest, data, out) else Answer.WRONG, status.st_ino)


def is_block(folder: PrivateFolder, name: str, digest: bytes) -> bool:
    """Tell whether a file is this block, by its header and its length.

    Raises OSError where the system does not tell, and ForeignError where the file is not this user's.
    """
    try:
        descriptor, status = folder.file(name, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        form = form_of(os.pread(descriptor, HEADER_BYTES, 0), digest)
    finally:
        os.close(descriptor)
    return form is not None and form.stored == status.st_size - HEADER_BYTES


def _odd(header: bytes, digest: bytes, stored: int) -> Answer:
    """Tell whether a file that is far too large for its taker is a block of another type or shape, or damaged."""
    form = form_of(header, digest)
    return Answer.WRONG if form is None or form.stored != stored else Answer.ABSENT


def _read(descriptor: int, header: bytearray, data: Bytes) -> int:
    """Fill both from the beginning of a file; return how many bytes came."""
    found = os.preadv(descriptor, [header, data.data[:_ONE_CALL]], 0)
    while HEADER_BYTES <= found < HEADER_BYTES + len(data):
        more = os.preadv(descriptor, [data.data[found - HEADER_BYTES :][:_ONE_CALL]], found)
        if not more:
            break
        found += more
    return found


def owner_of(folder: PrivateFolder, name: str) -> bytes:
    """Return which tier owns a file; empty where it does not say. Raises OSError where there is none."""
    descriptor, _ = folder.file(name, os.O_RDONLY)
    try:
        return os.pread(descriptor, OWNER_BYTES, OWNER_AT)
    finally:
        os.close(descriptor)


def set_owner(folder: PrivateFolder, name: str, owner: bytes) -> None:
    """Let a tier own a file; raises OSError where there is none."""
    descriptor, _ = folder.file(name, os.O_WRONLY)
    try:
        os.pwrite(descriptor, owner, OWNER_AT)
    finally:
        os.close(descriptor)


def opened_under(whole: PrivateFolder, name: str, *, make: bool = False) -> PrivateFolder:
    """Open the folder of a block's file, and so check each folder on the way; `make` those that are not there."""
    data, digits, _ = name.split("/")
    with whole.folder(data, make=make) as folder:
        return folder.folder(digits, make=make)


class BlockFiles:
    """Reads the blocks of a `DiskTier` by its `path`, whichever tier stored them; safe for many threads at once.

    Parameters
    ----------
    folder
        One of this user's alone; any other has no blocks.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._path = Path(folder)

    def fetch(self, key: BlockKey, out: Volume) -> Answer:
        """Fill `out` with a block of its type and shape; LOST where the system does not give the bytes."""
        name = name_of(key)
        try:
            with PrivateFolder.open(self._path) as whole, opened_under(whole, name) as folder:
                return read_block(folder, Path(name).name, key.digest, out).answer
        except (FileNotFoundError, NotADirectoryError):
            return Answer.ABSENT
        except OSError:
            return Answer.LOST

    def get_into(self, key: BlockKey, out: Volume) -> bool:
        """Fill `out` with a block of its type and shape; False, with `out` undefined, where that cannot be."""
        return self.fetch(key, out) is Answer.GOT

    def holds(self, key: BlockKey) -> bool:
        """Tell whether a block is there."""
        name = name_of(key)
        try:
            with PrivateFolder.open(self._path) as whole, opened_under(whole, name) as folder:
                return folder.status(Path(name).name) is not None
        except OSError:
            return False
