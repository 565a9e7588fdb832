"""Streams of a loader with a cache, a data set whose storage refuses reads, and the loader's tier in memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import voxload
from voxload.cache.memory.tier import MemoryTier
from voxload.errors import StorageError
from voxload.prefetch.line import MEMORY
from voxload.readers.protocol import ReadCost, Volume

SAMPLES = 11
BLOCK = 8 * 8 * 8 * 4 * 2
"""Bytes of a sample."""

Stream = list[tuple[torch.Tensor, torch.Tensor]]


class FlakyDataset(voxload.VolumeDataset):
    """A data set whose storage refuses a share of the reads, but none of them twice in a row unless it is gone."""

    share = 0.0

    def __init__(self, *arguments: Any, **words: Any) -> None:
        super().__init__(*arguments, **words)
        self._refused: set[int] = set()
        self._draw = np.random.default_rng(17)

    def read_into(self, index: int, volumes: Sequence[Volume], **which: int | None) -> ReadCost:
        """Read, or refuse to."""
        if self.share == 1 or (self._draw.random() < self.share and index not in self._refused):
            self._refused.add(index)
            raise StorageError("this read", found="refused, for the test")
        self._refused.discard(index)
        return super().read_into(index, volumes, **which)


def open_data(folder: Path, kind: type[voxload.VolumeDataset] = voxload.VolumeDataset) -> voxload.VolumeDataset:
    """Return the raw universes as a data set."""
    return kind(f"{folder}/*.h5", fields={"x": "full"}, axes="DHWC", targets="unitPar")


def stream(loader: torch.utils.data.DataLoader[Any], lengths: Sequence[int | None]) -> Stream:
    """Return the batches of some epochs, each left after so many batches."""
    found = []
    for length in lengths:
        for count, (x, y) in enumerate(loader):
            found.append((x.clone(), y.clone()))
            x.zero_()  # a consumer may do with a batch what it likes
            if length is not None and count + 1 >= length:
                break
    return found


def same(found: Stream, expected: Stream) -> bool:
    """Tell whether two streams are equal, in order and bit for bit."""
    return len(found) == len(expected) and all(
        torch.equal(x, p) and torch.equal(y, q) for (x, y), (p, q) in zip(found, expected, strict=True)
    )


def memory_of(loader: voxload.DataLoader) -> MemoryTier:
    """Return the tier in memory of a loader that has one."""
    assert loader._pipeline is not None
    assert loader._pipeline.prefetcher is not None
    tier = loader._pipeline.prefetcher.shared_tiers.tiers[MEMORY]
    assert isinstance(tier, MemoryTier)
    return tier
