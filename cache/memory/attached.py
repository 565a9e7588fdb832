"""AttachedMemory: the memory tier of another process of this node, read in place."""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from pathlib import Path

import numpy as np

from voxload.cache.memory.layout import HEAD, Layout
from voxload.cache.memory.sealed import map_sealed
from voxload.cache.protocol import Answer, BlockKey
from voxload.errors import DataError, NotFoundError, StorageError
from voxload.files.private import ForeignError, open_private
from voxload.readers.protocol import Volume

_ATTEMPTS = 4
"""Looks at a block that is dropped and stored again at the same moment, before it is called absent."""


class AttachedMemory:
    """Reads the blocks of a `MemoryTier` by its `path`; safe to use from many threads at once.

    Nothing tells the owner: it may drop a block and reuse its bytes at any time. Then the answer is no, never wrong
    bytes; nor does it matter when the owner is killed, however it is.

    Parameters
    ----------
    path
        The tier's.
    descriptor
        Of a tier that has no name, as its owner handed it over; it stays the caller's, who may close it at once.

    Raises
    ------
    NotFoundError
        When there is no such file: its owner has ended.
    DataError
        When the file is something else.
    StorageError
        When the system refuses it; ForeignError when another user made or may write it: a checksum proves nothing then.
    """

    def __init__(self, path: str, *, descriptor: int | None = None) -> None:
        self.path = path
        self._mapping = _mapped(path) if descriptor is None else map_sealed(descriptor, path)
        try:
            self._layout = Layout.parse(self._mapping[: HEAD.itemsize], len(self._mapping), path)
        except DataError:
            self._mapping.close()
            raise
        self._memory = np.frombuffer(self._mapping, np.uint8)

    def fetch(self, key: BlockKey, out: Volume) -> Answer:
        """Fill `out` with a block of its type and shape; WRONG where it is of another one, or damaged."""
        digest = key.digest
        window = self._memory[self._layout.window(digest)]
        for _ in range(_ATTEMPTS):
            row = self._layout.find(digest, window)
            if row is None:
                return Answer.ABSENT
            is_intact = row.form.takes(digest, self._memory[row.span], out)
            if self._memory[row.place].tobytes() == row.content:
                return Answer.GOT if is_intact else Answer.WRONG
        return Answer.ABSENT

    def get_into(self, key: BlockKey, out: Volume) -> bool:
        """Fill `out` with a block of its type and shape; False, with `out` undefined, where that cannot be."""
        return self.fetch(key, out) is Answer.GOT

    def holds(self, key: BlockKey) -> bool:
        """Tell whether a block is there."""
        return self._layout.find(key.digest, self._memory[self._layout.window(key.digest)]) is not None

    def close(self) -> None:
        """Release the mapping; no other call may run or follow."""
        del self._memory
        with suppress(BufferError):
            self._mapping.close()


def _mapped(path: str) -> mmap.mmap:
    """Map a file of this user's alone, to be read."""
    try:
        descriptor, status = open_private(Path(path), os.O_RDONLY)
    except FileNotFoundError as error:
        raise NotFoundError(path, found="no such file", expected="the memory tier of a running process") from error
    except ForeignError:
        raise
    except OSError as error:
        raise StorageError(path, found=os.strerror(error.errno or 0), expected="a readable memory tier") from error
    try:
        if not status.st_size:  # which cannot be mapped
            raise DataError(path, found="an empty file", expected="a memory tier")
        return mmap.mmap(descriptor, status.st_size, prot=mmap.PROT_READ)
    finally:
        os.close(descriptor)
