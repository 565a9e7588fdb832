"""Stamp: what tells a file from another one, and from itself once it was written to."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from voxload.errors import DataError
from voxload.readers.storage.locality import is_node_local

_FAR_NS = 5 * 10**9
"""A file changed less than five seconds ago may change again within one tick of its clock: two seconds on some file
systems, and the clocks of a server and its clients differ by as much."""
_NEAR_NS = 10**8
"""The same on this node's own file systems: the kernel stamps with the time of its last tick, ten milliseconds ago at
most."""
_SECOND_NS = 10**9
_near: dict[int, bool] = {}
"""Whether a device is this node's own; looked up once, as mounts do not change under a job."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """A file as it was; what was learnt of it then holds as long as `check_unchanged` raises nothing.

    The time of writing is its writer's to choose, and copying programs set it back; the time of change is the
    kernel's, which nobody can set.
    """

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
    changed: int
    """When it was last written to, or its rights, names or times were changed, in nanoseconds."""
    is_settled: bool = field(default=False, compare=False)
    """Whether the file gets another stamp if it is written to from the moment on when it got this one: only then may
    be kept what it holds. Of one that was changed just before, two contents can have the same stamp."""

    @classmethod
    def of(cls, path: str, descriptor: int | None = None, *, since: int | None = None) -> Stamp:
        """Return the stamp of a file as it is now.

        Parameters
        ----------
        path
            The file.
        descriptor
            It, where it is open.
        since
            Moment, in nanoseconds since 1970, from which on writing must show: that at which it was read. Now by
            default.
        """
        moment = time.time_ns() if since is None else since
        found = os.stat(path) if descriptor is None else os.fstat(descriptor)  # noqa: PTH116 - a Path takes longer
        is_near = is_on_near_device(found.st_dev, path)
        if descriptor is None and not is_near and stat.S_ISREG(found.st_mode):
            # A network file system answers by name from memory, for seconds; to open a file, it asks its server.
            opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                found = os.fstat(opened)
            finally:
                os.close(opened)
        written, changed = found.st_mtime_ns, found.st_ctime_ns
        is_fine = bool(written % _SECOND_NS or changed % _SECOND_NS)  # else its clock may tick in seconds
        young = moment - (_NEAR_NS if is_near and is_fine else _FAR_NS)
        is_settled = 0 <= written <= young and changed <= young
        return cls(path, found.st_dev, found.st_ino, found.st_size, written, changed, is_settled)

    def numbers(self) -> npt.NDArray[np.int64]:
        """Return it as the core takes it: ``struct stamp``."""
        return np.array([self.device, self.inode, self.size, self.written, self.changed, self.is_settled], np.int64)

    @property
    def text(self) -> str:
        """What tells the file from itself once it was written to, the same for all nodes that share it.

        Without the device, whose number each node gives anew at each start.
        """
        return f"{self.inode} {self.size} {self.written} {self.changed}"

    @property
    def is_outdated(self) -> bool:
        """Whether what was learnt of the file should be learnt anew, though nothing says that it was written to.

        So it is of a file of which only the time of change differs, by a change of its rights or by a writer that set
        its times back; and of one that had changed just before it got this stamp, once that is a while ago.
        """
        try:
            now = os.stat(self.path)  # noqa: PTH116 - a Path takes longer to make than to ask
            if self._is_that_of(now):
                return not self.is_settled and Stamp.of(self.path).is_settled
            return self._is_that_of(now, changed=now.st_ctime_ns)
        except OSError:  # who reads it says so
            return False

    def matches(self) -> bool:
        """Tell whether the file is there and still has this stamp."""
        try:
            return self._is_that_of(os.stat(self.path))  # noqa: PTH116 - a Path takes longer to make than to ask
        except (FileNotFoundError, NotADirectoryError):
            return False

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
        if not self._is_that_of(now):
            raise DataError(
                self.path,
                found="a file that changed since it was opened",
                expected="the file as it was",
                remedy="open it again when its writer has finished",
            )

    def _is_that_of(self, now: os.stat_result, changed: int | None = None) -> bool:
        found = (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns)
        wanted = (self.device, self.inode, self.size, self.written, self.changed if changed is None else changed)
        return found == wanted


def is_on_near_device(device: int, path: str) -> bool:
    """Tell whether a device, on which `path` lies, is a file system of this node; looked up once for each."""
    known = _near.get(device)
    if known is None:
        known = _near[device] = is_node_local(path)
    return known
