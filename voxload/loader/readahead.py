"""ReadAhead: the batches of one epoch, read by threads before they are asked for, in order.

Rules of this file:

1. The sampler is asked for indices, and slots are taken, by the consumer's thread only.
2. A batch in flight holds its slot; batches are delivered in the order of the sampler, whichever is read first.
3. What a reader thread raises is raised to the consumer in place of that batch; the next batch is unharmed.
4. Dropping the object stops its threads: what has not begun is cancelled, what has begun ends by itself.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import torch

from voxload.dataset import FieldLayout, VolumeDataset
from voxload.loader.batch import Batch
from voxload.loader.blocks import unequal
from voxload.loader.staging import StagingRing
from voxload.prefetch.workers import Workers
from voxload.readers.protocol import ReadCost, Volume


@dataclass(frozen=True, slots=True)
class _Pending:
    indices: tuple[int, ...]
    arrays: list[Volume]
    futures: list[Future[tuple[ReadCost, torch.Tensor | None]]]


class ReadAhead:
    """Iterates over batches, reading as many ahead as the ring has slots.

    Parameters
    ----------
    dataset
        What is read.
    indices
        The sample indices of each batch, in order.
    ring
        Slots for the batches in flight.
    threads
        Reader threads.
    timeout
        Seconds to wait for one batch; None waits for as long as its reads take.
    """

    def __init__(
        self,
        dataset: VolumeDataset,
        indices: Iterator[Sequence[int]],
        *,
        ring: StagingRing,
        threads: int,
        timeout: float | None = None,
    ) -> None:
        self._dataset = dataset
        self._indices: Iterator[Sequence[int]] | None = indices
        self._ring = ring
        self._timeout = timeout
        self._pending: deque[_Pending] = deque()
        self._pool = Workers(threads, "voxload-reader")
        self._stop = weakref.finalize(self, self._pool.shutdown, wait=False, cancel_futures=True)

    def start(self) -> None:
        """Begin to read as many batches as there are free slots."""
        while self._indices is not None:
            slot = self._ring.acquire()
            if slot is None:
                if self._pending:
                    return
                slot = self._ring.replace()
            indices = next(self._indices, None)
            if indices is None:
                self._ring.give_back([slot])
                self._indices = None
                return
            self._submit(tuple(indices), slot.arrays())

    def next(self) -> Batch | None:
        """Return the next batch, waiting for its reads; None when there is none left.

        Raises
        ------
        RuntimeError
            When the batch takes longer than the time-out.
        VoxloadError
            Whatever reading one of its samples raised.
        """
        self.start()
        if not self._pending:
            self._pool.shutdown()
            return None
        pending = self._pending.popleft()
        try:
            results = [future.result(self._timeout) for future in pending.futures]
        except TimeoutError:
            # The words of torch's own loader: programs look for them.
            raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds") from None
        count = len(pending.indices)
        targets = [values for _, values in results if values is not None]
        return Batch(
            indices=pending.indices,
            volumes=tuple(torch.from_numpy(array[:count]) for array in pending.arrays),
            targets=torch.stack(targets) if targets else None,
            cost=sum((cost for cost, _ in results), ReadCost()),
        )

    def _submit(self, indices: tuple[int, ...], arrays: list[Volume]) -> None:
        futures = [
            self._pool.submit(_read, self._dataset, index, [array[place] for array in arrays], self._ring.layout.fields)
            for place, index in enumerate(indices)
        ]
        self._pending.append(_Pending(indices, arrays, futures))


def _read(
    dataset: VolumeDataset, index: int, volumes: list[Volume], expected: tuple[FieldLayout, ...]
) -> tuple[ReadCost, torch.Tensor | None]:
    """Read one sample into its places of a slot; runs in a reader thread."""
    layout = dataset.layout(index)
    if layout != expected:
        raise unequal(dataset.sample_ids[index], layout, expected)
    return dataset.read_into(index, volumes), dataset.read_targets(index)
