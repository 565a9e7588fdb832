"""Stamp: what tells a file from another one, and from itself once it was written to."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from voxload.errors import DataError

_SETTLED_NS = 5 * 10**9
"""A file written to less than five seconds ago may change again within one tick of its clock: two seconds on some
file systems, and the clocks of a server and its clients differ by as much."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """A file as it was; what was learnt of it then holds as long as `check_unchanged` raises nothing."""

    path: str
    """The file."""
    device: int
    """Its file system."""
    inode: int
    """Its number there: another one after the file was replaced."""
    size: int
    """Its bytes."""
    written: int
    """When it was last written to, in nanoseconds."""

    @classmethod
    def of(cls, path: str, status: os.stat_result | None = None) -> Stamp:
        """Return the stamp of a file as it is now, or as it was when its `status` was asked for."""
        found = status or Path(path).stat()
        return cls(path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)

    @property
    def is_settled(self) -> bool:
        """Whether the file gets another stamp if it is written to from now on: only then may be kept what it holds."""
        return 0 <= self.written <= time.time_ns() - _SETTLED_NS

    def check_unchanged(self) -> None:
        """Refuse a file that was written to or replaced: what is known of it may no longer hold.

        A file that was removed can still be read: its bytes last as long as it is open.

        Raises
        ------
        DataError
            When the file is not the one it was.
        """
        try:
            now = os.stat(self.path)  # noqa: PTH116 - a Path takes longer to make than to ask
        except FileNotFoundError:
            return
        if (now.st_mtime_ns, now.st_size, now.st_ino, now.st_dev) != (
            self.written,
            self.size,
            self.inode,
            self.device,
        ):
            raise DataError(
                self.path,
                found="a file that changed since it was opened",
                expected="the file as it was",
                remedy="open it again when its writer has finished",
            )
