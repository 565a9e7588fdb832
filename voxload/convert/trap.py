"""TrappedFile: a file whose first failed write is kept for the caller instead of passed on.

libhdf5 does not survive a full disk: metadata that cannot be flushed stay in its cache, the file cannot be
closed, and the process may crash later, when the handle is collected (seen with HDF5 2.0). So HDF5 is given
this file. From the first failure on it accepts every write and drops it, HDF5 closes in peace, and the caller
asks for the failure after each step and throws the file away.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any


class TrappedFile(io.RawIOBase):
    """A new file for reading and writing; one thread at a time.

    Parameters
    ----------
    path
        The file; what was there is emptied.

    Raises
    ------
    OSError
        When the file cannot be made.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = path.open("w+b", buffering=0)
        self._failure: OSError | None = None

    def check(self) -> None:
        """Raise the first failure, if there was one."""
        if self._failure is not None:
            raise OSError(self._failure.errno, os.strerror(self._failure.errno or 0)) from self._failure

    def write(self, content: Any) -> int:
        """Write all of `content`, or nothing more after a failure."""
        view = memoryview(content).cast("B")
        position = 0
        while self._failure is None and position < len(view):
            try:
                position += self._file.write(view[position:]) or 0
            except OSError as error:
                self._failure = error
        return len(view)

    def readinto(self, buffer: Any) -> int:
        """Read as much as there is; what was dropped after a failure reads as zeros."""
        view = memoryview(buffer).cast("B")
        count = self._file.readinto(view) or 0
        if self._failure is not None:
            view[count:] = bytes(len(view) - count)
            return len(view)
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move to a position."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the position."""
        return self._file.tell()

    def truncate(self, size: int | None = None, /) -> int:
        """Set the length, unless there was a failure."""
        if self._failure is None:
            try:
                return self._file.truncate(size)
            except OSError as error:
                self._failure = error
        return size or 0

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()
