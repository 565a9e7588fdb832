"""Delivery: the epoch under way, in the order that was asked for, its batches put where the workload wants them."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator

from torch import Tensor
from torch.utils.data import Sampler

from voxload.benchmark.workload.workload import Supply


class GivenOrder(Sampler[int]):
    """Gives the indices that were asked for last; used by one thread."""

    def __init__(self) -> None:
        self.indices: tuple[int, ...] = ()

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)

    def __len__(self) -> int:
        return len(self.indices)


class CurrentEpoch:
    """Holds the epoch that was begun last, and ends it; used by one thread."""

    def __init__(self) -> None:
        self._epoch: Generator[Tensor] | None = None

    def begin(self, epoch: Generator[Tensor]) -> Generator[Tensor]:
        """Note an epoch whose batches are about to be taken, and return it."""
        self._epoch = epoch
        return epoch

    def end(self) -> None:
        """End the epoch under way, if there is one, with all that it holds."""
        epoch, self._epoch = self._epoch, None
        if epoch is not None:
            epoch.close()


CPU = "cpu"


def is_on_device(supply: Supply) -> bool:
    """Tell whether batches go to a device, from pinned memory."""
    return supply.device != CPU


def delivered(batches: Iterable[Tensor], supply: Supply) -> Generator[Tensor]:
    """Yield the batches where they are wanted, and hold none of them while the next one is made."""
    for batch in batches:
        yield batch.to(supply.device, non_blocking=True) if is_on_device(supply) else batch
        del batch
