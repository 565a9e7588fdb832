"""BlockReader: one process's reads of blocks through a library, with what is kept open and used again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

import numpy as np

from voxload.benchmark.loaders.cut import Cut, Slices
from voxload.benchmark.loaders.protocol import Task, Volume
from voxload.readers.protocol import Volume as Array

MOST_OPEN = 128
"""Volumes that a process keeps open: far fewer than the descriptors that systems allow by default."""


class Stored(Protocol):
    """One open stored array; used by one thread."""

    def view(self, source: Slices) -> Array | None:
        """Return a box as a view where the library has one; None where it must be read."""
        ...

    def read(self, source: Slices, out: Array, target: Slices) -> None:
        """Read a box into a part of an array."""
        ...

    def close(self) -> None:
        """Close its files."""
        ...


Opener = Callable[[Volume], Stored]
"""Opens a volume; picklable, for worker processes."""


class BlockReader:
    """Reads this rank's blocks; used by one thread, in the process that reads first.

    Parameters
    ----------
    task
        What is read.
    opener
        The library.
    most_open
        Volumes that are kept open; with 0 each is opened for one block.
    """

    def __init__(self, task: Task, opener: Opener, *, most_open: int = MOST_OPEN) -> None:
        self.cut = Cut.of(task)
        self._volumes, self._opener, self._most_open = task.volumes, opener, most_open
        self._ring_size = task.workload.share.batch_size
        self._open: OrderedDict[int, Stored] = OrderedDict()
        self._ring: list[Array] = []
        self._scratch: tuple[Array | None, ...] | None = None
        self._turn = 0

    def __len__(self) -> int:
        return len(self._volumes)

    def block(self, index: int) -> Array:
        """Return a sample's block (C, d, h, w): a view that is good until as many as a batch has were asked for."""
        stored = self._stored(index)
        if self.cut.is_plain:
            view = stored.view(self.cut.parts[0].source)
            if view is not None:
                return self.cut.as_volume(view.astype(self.cut.dtype, copy=False))
        return self.cut.as_volume(self._filled(stored))

    def read_into(self, index: int, out: Array) -> None:
        """Read a sample's block into `out`, (C, d, h, w), which holds zeros wherever the sample does not reach."""
        target, stored = self.cut.as_stored(out), self._stored(index)
        if target.flags.c_contiguous:
            self._fill(target, stored)
        else:
            np.copyto(target, self._filled(stored))

    def close(self) -> None:
        """Close all that is open."""
        while self._open:
            self._open.popitem()[1].close()

    def _filled(self, stored: Stored) -> Array:
        """Return the next buffer, filled; nobody writes where a block leaves the sample, so zeros stay there."""
        if not self._ring:
            self._ring = [np.zeros(self.cut.shape, self.cut.dtype) for _ in range(self._ring_size)]
        self._turn = (self._turn + 1) % self._ring_size
        self._fill(self._ring[self._turn], stored)
        return self._ring[self._turn]

    def _fill(self, out: Array, stored: Stored) -> None:
        if self._scratch is None:
            self._scratch = self.cut.new_scratch()
        self.cut.fill(out, stored.read, self._scratch)

    def _stored(self, index: int) -> Stored:
        """Return a volume that is open, and close those that were not used for longest."""
        found = self._open.pop(index, None)
        while found is None and self._open and len(self._open) >= self._most_open:
            self._open.popitem(last=False)[1].close()
        found = self._opener(self._volumes[index]) if found is None else found
        if self._most_open:
            self._open[index] = found
        return found
