"""Threads: a chain's slabs, shared out among those that read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from voxload.readers.team import team

T = TypeVar("T")

_ALONE = 2**20
"""Voxels that one thread does in about a millisecond: fewer are done before others have woken up."""


def share_out(work: Callable[[T], None], tasks: Sequence[T], voxels: int) -> None:
    """Do all tasks, by the calling thread and, of many voxels, by whoever is free; raises what a task raises."""
    if voxels < _ALONE:
        for task in tasks:
            work(task)
    else:
        team().run(work, tasks)
