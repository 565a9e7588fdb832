"""Arena: which bytes of a region are free; pure integers, best fit, free neighbours grow together."""

from __future__ import annotations

from bisect import bisect_left, insort

from voxload.errors import InternalError

GRAIN = 64
"""Every piece begins at, and takes, a multiple of this: a line of the processor's caches."""


def footprint(nbytes: int) -> int:
    """Return what a piece of `nbytes` takes: at least one grain, so that no two pieces begin at one place."""
    return max(1, -(-nbytes // GRAIN)) * GRAIN


class Arena:
    """Allocator of a region of `nbytes`; whoever uses it sees to it that one thread at a time does.

    Of the free pieces that are large enough it takes the smallest, and of those the first: blocks of one size, as the
    ranks of a line have, then leave no gaps that none of them fits into.
    """

    def __init__(self, nbytes: int) -> None:
        self.size = max(0, nbytes) // GRAIN * GRAIN
        """Bytes of the region."""
        self._taken: dict[int, int] = {}
        self._by_start: dict[int, int] = {}
        self._by_end: dict[int, int] = {}
        self._by_size: list[tuple[int, int]] = []
        self.used = 0
        if self.size:
            self._add(0, self.size)

    def allocate(self, nbytes: int) -> int | None:
        """Return where a piece begins; None where no free one is large enough."""
        wanted = footprint(nbytes)
        place = bisect_left(self._by_size, (wanted, 0))
        if place == len(self._by_size):
            return None
        size, start = self._by_size[place]
        self._remove(start, size)
        if size > wanted:
            self._add(start + wanted, size - wanted)
        self._taken[start] = wanted
        self.used += wanted
        return start

    @property
    def last(self) -> int:
        """Behind the last piece that is taken."""
        free = self._by_end.get(self.size)
        return self.size if free is None else free

    def resize(self, nbytes: int) -> None:
        """Have a region of another length; raises InternalError where a piece of it is taken that would be outside."""
        size = max(0, nbytes) // GRAIN * GRAIN
        if size < self.last:
            raise InternalError("arena", found=f"a piece taken up to {self.last}", expected=f"none beyond {size}")
        last = self.last
        if last < self.size:
            self._remove(last, self.size - last)
        self.size = size
        if last < size:
            self._add(last, size - last)

    def free(self, start: int) -> None:
        """Give a piece back; raises InternalError where none begins there."""
        size = self._taken.pop(start, 0)
        if not size:
            raise InternalError("arena", found=f"a piece at {start} given back", expected="one that was taken")
        self.used -= size
        before = self._by_end.get(start)
        if before is not None:
            length = start - before
            self._remove(before, length)
            start, size = before, size + length
        after = self._by_start.get(start + size)
        if after is not None:
            self._remove(start + size, after)
            size += after
        self._add(start, size)

    def _add(self, start: int, size: int) -> None:
        self._by_start[start] = size
        self._by_end[start + size] = start
        insort(self._by_size, (size, start))

    def _remove(self, start: int, size: int) -> None:
        del self._by_start[start], self._by_end[start + size]
        del self._by_size[bisect_left(self._by_size, (size, start))]
