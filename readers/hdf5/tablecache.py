"""Table cache: chunk tables kept for the next reader of the same dataset, in this process or in sidecar files.

Sidecar: a chunk table kept in a file of its own, for the next process that reads the same HDF5 dataset. Rules: 1. A
sidecar is trusted only for the very file that it was made of: same path, inode, size, times of writing and of change,
dataset and shape, and the same version of this layout; for an object in a bucket, same URL, size and entity tag. Its
content ends in a crc32c. 2. It is a cache. One that is damaged, foreign or unreadable is as good as none, and a
folder that cannot be written is no error. 3. A checksum proves nothing against who makes one: folder and file are
this user's alone (`voxload.files.private`), or as good as none. Forged offsets are other voxels. 4. The folder is
bounded: a new sidecar pushes out those written longest ago.

Layout, little-endian: magic, length of the key, the key as JSON, the offsets (u8), sizes (i8) and masks (u4) of the
chunks in the order of the grid, and the checksum of all that.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import struct
import threading
from contextlib import suppress
from functools import lru_cache
from math import prod
from pathlib import Path

import crc32c
import h5py
import numpy as np

from voxload.files.private import ForeignError, PrivateFolder
from voxload.readers.hdf5.chunktable import ChunkTable
from voxload.readers.remote.ranges import ObjectStamp
from voxload.readers.storage.stamp import Stamp
from voxload.text import shown

MIN_CHUNKS = 2048
"""Smaller tables are not kept. ``bench/chunk_table.py`` measures about 4 ms of ``chunk_iter`` for a thousand chunks,
against 0.1 ms to load a sidecar and 1 ms to save one: below some 300 chunks a sidecar costs more than it spares, and
below this limit what it spares is less than opening a file costs on a network file system."""
MAX_FOLDER_BYTES = 2**28
"""Bytes of all sidecars together; a million chunks take 20 MB."""
_MAGIC = b"VXCHUNK1"
_LENGTH = struct.Struct("<I")
_SUFFIX = ".chunks"
_ROW_BYTES = 20
_log = logging.getLogger(__name__)


def cache_folder() -> Path | None:
    """Return the folder of sidecars, which need not exist; None when ``VOXLOAD_CHUNK_TABLES=off`` forbids them.

    It is ``chunk-tables`` in ``VOXLOAD_CACHE_DIR``, or in ``voxload`` in ``XDG_CACHE_HOME`` or ``~/.cache``.
    """
    if os.environ.get("VOXLOAD_CHUNK_TABLES", "").lower() == "off":
        return None
    base = os.environ.get("VOXLOAD_CACHE_DIR")
    if not base:
        home = os.environ.get("XDG_CACHE_HOME")
        try:
            base = str(Path(home or Path.home() / ".cache") / "voxload")
        except RuntimeError:  # a user without a home
            return None
    return Path(base) / "chunk-tables"


class Sidecar:
    """The sidecar of one dataset.

    Parameters
    ----------
    dataset
        Whose chunks.
    stamp
        Its file, as it was before the dataset was opened.
    folder
        Where sidecars are kept.
    """

    def __init__(self, dataset: h5py.Dataset, stamp: Stamp | ObjectStamp, folder: Path) -> None:
        self._chunk = tuple(dataset.chunks)
        self._grid = tuple(-(-extent // width) for extent, width in zip(dataset.shape, self._chunk, strict=True))
        self._itemsize = int(dataset.dtype.itemsize)
        key = {
            **_identity(stamp),
            "dataset": dataset.name,
            "shape": dataset.shape,
            "chunk": self._chunk,
        }
        self._head = json.dumps(key, sort_keys=True).encode(errors="surrogateescape")
        name = hashlib.sha256(f"{key['path']}\0{key['dataset']}".encode(errors="surrogateescape")).hexdigest()
        self.path = folder / f"{name[:40]}{_SUFFIX}"

    def load(self) -> ChunkTable | None:
        """Return the table; None when there is none that can be trusted."""
        count = prod(self._grid)
        expected = len(_MAGIC) + _LENGTH.size + len(self._head) + count * _ROW_BYTES + _LENGTH.size
        try:
            with PrivateFolder.open(self.path.parent) as folder:
                descriptor, status = folder.file(self.path.name, os.O_RDONLY)
            with os.fdopen(descriptor, "rb") as file:
                if status.st_size != expected:
                    return None
                data = file.read(expected)
        except ForeignError as error:
            _warn_once(error.kind, str(error))
            return None
        except OSError:
            return None
        start = len(_MAGIC) + _LENGTH.size
        if len(data) != expected or data[: start + len(self._head)] != self._prefix():
            return None
        if _LENGTH.unpack_from(data, expected - _LENGTH.size)[0] != _checksum(data[: -_LENGTH.size]):
            return None
        at = start + len(self._head)
        columns = []
        for kind in ("<u8", "<i8", "<u4"):
            column = np.frombuffer(data, kind, count, at).reshape(self._grid)
            columns.append(column.astype(column.dtype.newbyteorder("=")))
            at += column.nbytes
        return ChunkTable(*columns, chunk=self._chunk, itemsize=self._itemsize)

    def save(self, table: ChunkTable) -> None:
        """Keep a table, in one piece or not at all; nothing happens where it cannot be written."""
        body = b"".join(
            [
                self._prefix(),
                table.offsets.astype("<u8").tobytes(),
                table.sizes.astype("<i8").tobytes(),
                table.masks.astype("<u4").tobytes(),
            ]
        )
        content = body + _LENGTH.pack(_checksum(body))
        if len(content) > MAX_FOLDER_BYTES:
            return
        try:
            with PrivateFolder.make(self.path.parent) as folder:
                _make_room(folder, self.path.name, len(content))
                _replace(folder, self.path.name, content)
        except ForeignError as error:
            _warn_once(error.kind, str(error))
        except OSError as error:
            _tell_once(str(self.path.parent), str(error))

    def _prefix(self) -> bytes:
        return _MAGIC + _LENGTH.pack(len(self._head)) + self._head


def _identity(stamp: Stamp | ObjectStamp) -> dict[str, str | int]:
    """Return what tells a file, or an object, from all others and from itself once it was written again."""
    if isinstance(stamp, ObjectStamp):
        return {"path": stamp.path, "size": stamp.size, "version": stamp.version}
    path = str(Path(stamp.path).absolute())
    return {"path": path, "file": stamp.text}


def _checksum(data: bytes) -> int:
    return crc32c.crc32c(data)


def _replace(folder: PrivateFolder, name: str, content: bytes) -> None:
    """Put a file into place; not flushed to the device, since the checksum tells what a power cut left of it."""
    temporary = f".{name[:8]}-{secrets.token_hex(8)}{_SUFFIX}"
    descriptor, _ = folder.file(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        folder.rename(temporary, name, folder)
    except BaseException:
        with suppress(OSError):
            folder.unlink(temporary)
        raise


def _make_room(folder: PrivateFolder, name: str, size: int) -> None:
    """Remove the sidecars, and what killed processes left of some, that were written longest ago."""
    found = []
    for other in folder.names():
        status = folder.status(other) if other.endswith(_SUFFIX) and other != name else None
        if status is not None:
            found.append((status.st_mtime_ns, status.st_size, other))
    room = MAX_FOLDER_BYTES - size - sum(length for _, length, _ in found)
    for _, length, other in sorted(found):
        if room >= 0:
            return
        with suppress(FileNotFoundError):
            folder.unlink(other)
        room += length


@lru_cache(maxsize=64)
def _tell_once(folder: str, reason: str) -> None:
    _log.debug("chunk tables are not kept in %s: %s", folder, reason)


@lru_cache(maxsize=64)
def _warn_once(_kind: str, reason: str) -> None:
    _log.warning("chunk tables are read from the files themselves: %s", shown(reason))


MAX_KEPT_BYTES = 2**26
"""Bytes of the tables that a process keeps for files it may open again."""

_ENTRY_BYTES = 2**10
"""About what a table takes besides its columns."""

_Key = tuple[Stamp | ObjectStamp, str]


class Tables:
    """A bounded number of chunk tables, the last used ones; safe to use from many threads."""

    def __init__(self, max_bytes: int) -> None:
        self._spare = max_bytes
        self._lock = threading.Lock()
        self._kept: dict[_Key, ChunkTable] = {}

    def load(self, dataset: h5py.Dataset, stamp: Stamp | ObjectStamp) -> ChunkTable:
        """Return the table of a chunked dataset: a kept one, its sidecar's, or read from the file's index.

        `stamp` is the file's from before it was opened. Nothing is kept of a file that was written to just now, or
        while its table was read.

        Raises
        ------
        DataError
            When a chunk does not lie in the file; names it.
        """
        subject = f"{stamp.path}:{dataset.name.removeprefix('/')}"
        if not stamp.is_settled:
            table = ChunkTable.read(dataset)
            table.check(subject, stamp.size)
            return table
        key = (stamp, str(dataset.name))
        with self._lock:
            kept = self._kept.pop(key, None)
            if kept is not None:
                self._kept[key] = kept
                return kept
        table = _load(dataset, stamp, subject)
        with self._lock:
            old = self._kept.pop(key, None)  # another thread's
            self._kept[key] = table
            self._spare -= _counted(table) - (0 if old is None else _counted(old))
            while self._spare < 0:
                self._spare += _counted(self._kept.pop(next(iter(self._kept))))
        return table


def _counted(table: ChunkTable) -> int:
    """Return the bytes that a table is counted for; most are small, and what tells them apart is larger."""
    return _ENTRY_BYTES + table.nbytes


def _load(dataset: h5py.Dataset, stamp: Stamp | ObjectStamp, subject: str) -> ChunkTable:
    count = prod(-(-extent // width) for extent, width in zip(dataset.shape, dataset.chunks, strict=True))
    folder = cache_folder() if count >= MIN_CHUNKS else None
    sidecar = Sidecar(dataset, stamp, folder) if folder else None
    table = sidecar.load() if sidecar else None
    if table is not None:
        table.check(subject, stamp.size)
        return table
    table = ChunkTable.read(dataset)
    table.check(subject, stamp.size)
    stamp.check_unchanged()
    if sidecar:
        sidecar.save(table)
    return table


_tables = Tables(MAX_KEPT_BYTES)


def load_table(dataset: h5py.Dataset, stamp: Stamp | ObjectStamp) -> ChunkTable:
    """Return the table of a chunked dataset, from the process's tables; see `Tables.load`."""
    return _tables.load(dataset, stamp)


def _forget() -> None:
    """Start afresh in a forked child: a lock that another thread held stays locked there."""
    global _tables  # noqa: PLW0603 - tables belong to the process
    _tables = Tables(MAX_KEPT_BYTES)


os.register_at_fork(after_in_child=_forget)
