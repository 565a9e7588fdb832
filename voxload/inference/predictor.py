"""Predictor: what becomes of the network's outputs."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from voxload.inference.data import Batch
from voxload.inference.result import InferenceResult


class Predictor(Protocol):
    """One kind of predictions; used by one thread of each rank, from the samples' first batch to the last."""

    def take(self, batch: Batch, outputs: Tensor) -> None:
        """Keep or write what the network gives for this rank's blocks of a batch; groups take turns of their own.

        Raises DataError for labels that are none, StorageError when the storage refuses.
        """
        ...

    def finish(self) -> InferenceResult:
        """Put all files into place, and return the figures on every rank; all ranks call it together."""
        ...
