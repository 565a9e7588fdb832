"""Delivery: the epoch under way, in the order that was asked for, its batches put where the workload wants them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor
from torch.utils.data import Sampler

from voxload.benchmark.loaders.protocol import Task
from voxload.benchmark.workload.workload import Supply


class GivenOrder(Sampler[int]):
    """Gives the indices that were asked for last; used by one thread."""

    def __init__(self) -> None:
        self.indices: tuple[int, ...] = ()

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)

    def __len__(self) -> int:
        return len(self.indices)


class Loading(ABC):
    """Holds the epoch that was begun last, and ends it; see BenchLoader.

    A subclass says what the batches of an epoch are, and closes what it has opened.
    """

    def __init__(self, task: Task) -> None:
        self._supply = task.workload.supply
        self._size = task.workload.share.batch_size
        self._epoch: Generator[Tensor] | None = None

    def epoch(self, number: int, indices: tuple[int, ...]) -> Iterator[Tensor]:  # noqa: ARG002 - the contract's
        """See BenchLoader."""
        self._end()
        self._epoch = self._batches(indices)
        return self._epoch

    def counts(self) -> Mapping[str, Any]:
        """See BenchLoader; other libraries count nothing."""
        return {}

    def close(self) -> None:
        """See BenchLoader; subclasses close what they have opened."""
        self._end()

    @abstractmethod
    def _batches(self, indices: tuple[int, ...]) -> Generator[Tensor]:
        """Return the batches of an epoch, each where it is wanted; the epoch before has ended."""

    def _end(self) -> None:
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
