"""Data sets that another process can make, some of whose samples fail, wait or do not fit."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from voxload import VolumeDataset
from voxload.errors import DataError
from voxload.readers.protocol import ReadCost, Volume
from voxload.readers.settings import ReaderSettings


class KeptError(Exception):
    """An error that no process can give to another one."""

    def __reduce__(self) -> Any:
        raise TypeError("kept here")


class Failing(VolumeDataset):
    """Samples 1, 2 and 3 cannot be read."""

    def read_into(
        self, index: int, volumes: Sequence[Volume], *, epoch: int | None = None, repeat: int | None = None
    ) -> ReadCost:
        """See VolumeDataset."""
        if index == 1:
            raise DataError("sample 1", found="damage", remedy="write it again")
        if index == 2:
            raise KeyError("sample 2")
        if index == 3:
            raise KeptError("sample 3")
        return super().read_into(index, volumes, epoch=epoch, repeat=repeat)


class Telling(VolumeDataset):
    """Targets are how this process reads."""

    def read_targets(self, index: int) -> torch.Tensor | None:
        """See VolumeDataset."""
        del index
        own = ReaderSettings.current()
        kept = own.chunk_cache, own.kept_chunks
        return torch.tensor([os.getpid(), own.threads, own.is_direct, *kept], dtype=torch.float64)


class Waiting(VolumeDataset):
    """Sample 1 is read once somebody writes to a pipe beside the files; the process is told there before."""

    pipes: Path

    def read_into(
        self, index: int, volumes: Sequence[Volume], *, epoch: int | None = None, repeat: int | None = None
    ) -> ReadCost:
        """See VolumeDataset."""
        if index == 1:
            (self.pipes / "begun").write_text(f"{os.getpid()}\n")
            (self.pipes / "go").read_text()
        return super().read_into(index, volumes, epoch=epoch, repeat=repeat)
