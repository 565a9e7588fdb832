"""torch's own iterators, for data sets that are no VolumeDataset, with the batches counted that they deliver."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data.dataloader import (
    _BaseDataLoaderIter,
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)

from voxload.loader.cursor import Run


class _Counted(_BaseDataLoaderIter):
    """An iterator that tells its run of indices how far it is."""

    def _next_data(self) -> Any:
        run = self._sampler_iter
        if not isinstance(run, Run):  # a subclass of the loader iterates something else
            return super()._next_data()
        try:
            return super()._next_data()
        except StopIteration:
            run.reached(self._passed(run))
            run.finish()
            raise
        finally:
            run.reached(self._passed(run))

    def _passed(self, run: Run) -> int:
        """Return how many batches were delivered, or raised in their place."""
        return run.drawn


class CountedIterator(_Counted, _SingleProcessDataLoaderIter):
    """torch's iterator without worker processes."""


class CountedWorkersIterator(_Counted, _MultiProcessingDataLoaderIter):
    """torch's iterator with worker processes."""

    def _passed(self, run: Run) -> int:  # noqa: ARG002 - what is drawn is ahead of what is delivered
        return self._rcvd_idx


def counted_iterator(loader: torch.utils.data.DataLoader[Any]) -> _BaseDataLoaderIter:
    """Return the iterator that torch's loader would make, under torch's name for it in profiles."""
    if loader.num_workers == 0:
        made: _BaseDataLoaderIter = CountedIterator(loader)
    else:
        loader.check_worker_number_rationality()
        made = CountedWorkersIterator(loader)
    made._profile_name = f"enumerate(DataLoader)#{type(made).__mro__[2].__name__}.__next__"  # noqa: SLF001 - torch's own
    return made
