"""AskedOrder: torch's word for the order of an epoch that somebody else decides."""

from __future__ import annotations

from collections.abc import Iterator

from torch.utils.data import Sampler


class AskedOrder(Sampler[int]):
    """Gives the indices that were asked for last; used by one thread."""

    def __init__(self) -> None:
        self.indices: tuple[int, ...] = ()

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)

    def __len__(self) -> int:
        return len(self.indices)
