"""Numbered: tells torch's own loader which draw of a sample each of a sampler's is, where samples are repeated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Self


class Draw(int):
    """The index of a sample, and how often it was drawn before in the epoch; may be sent to other processes."""

    repeat: int
    """Earlier draws of the same sample."""

    def __new__(cls, index: int, repeat: int) -> Self:
        """Return an index with a count."""
        made = super().__new__(cls, index)
        made.repeat = repeat
        return made

    def __reduce__(self) -> tuple[type[Draw], tuple[int, int]]:
        """Return it with its count."""
        return Draw, (int(self), self.repeat)


class Numbered:
    """A sampler whose indices know which draw of their sample they are.

    torch's loader asks a data set for an index and nothing else, so two draws of one sample would be augmented alike.
    `voxload.DataLoader` counts by itself and needs none of this. Used by one thread.

    Parameters
    ----------
    sampler
        Gives indices, each epoch anew, such as ``RandomSampler(data, replacement=True)``.

    Examples
    --------
    >>> [(int(draw), draw.repeat) for draw in Numbered([0, 2, 0, 0])]
    [(0, 0), (2, 0), (0, 1), (0, 2)]
    """

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator[Draw]:
        """Return the sampler's indices, counted from 0."""
        seen: Counter[int] = Counter()
        for index in self.sampler:
            yield Draw(index, seen[int(index)])
            seen[int(index)] += 1

    def __len__(self) -> int:
        return len(self.sampler)

    def set_epoch(self, epoch: int) -> None:
        """Choose the sampler's epoch, where it knows any."""
        choose = getattr(self.sampler, "set_epoch", None)
        if callable(choose):
            choose(epoch)
