"""MemoryGroup: a memory cgroup of its own, where this machine permits it."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Self

_V1, _V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


class MemoryGroup:
    """A group of processes that may have so much memory together, pages of the files that they read included.

    A context manager; its processes must have ended before it does.

    Parameters
    ----------
    limit
        Bytes.

    Raises
    ------
    OSError
        When this machine does not permit it: it takes root, and a hierarchy that is mounted to be written to.
    """

    def __init__(self, limit: int) -> None:
        is_first = (_V1 / "memory.limit_in_bytes").exists()
        self._folder = (_V1 if is_first else _V2) / f"voxload-cold-{os.getpid()}"
        if not is_first:
            (_V2 / "cgroup.subtree_control").write_text("+memory")
        self._folder.mkdir()
        try:
            (self._folder / ("memory.limit_in_bytes" if is_first else "memory.max")).write_text(str(limit))
        except OSError:
            self._folder.rmdir()
            raise

    def add(self, pid: int) -> None:
        """Move a process into the group; what it holds already is not counted."""
        (self._folder / "cgroup.procs").write_text(str(pid))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folder.rmdir()
