"""ZarrArray: an array through zarr-python, by its own pipeline of codecs or by that of zarrs; its loaders."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np
import zarr
from zarr.core.buffer import cpu

from voxload.benchmark.loaders.block_loading import TorchLoading
from voxload.benchmark.loaders.blocks import BlockReader, Slices
from voxload.benchmark.loaders.protocol import Task, Volume
from voxload.readers.protocol import Volume as Array

ONE_CORE = {"threading.max_workers": 1}
"""The library's own pipeline on one core: more threads of a worker process would take turns."""
_PIPELINE = "codec_pipeline.path"
_ZARRS = "zarrs.ZarrsCodecPipeline"


def zarrs_pipeline(threads: int) -> dict[str, Any]:
    """Return the configuration of zarr-python with which zarrs decodes, on so many threads."""
    return {
        _PIPELINE: _ZARRS,
        "codec_pipeline.strict": True,
        "codec_pipeline.chunk_concurrent_maximum": threads,
        "threading.max_workers": threads,
    }


class ZarrArray:
    """See Stored.

    Parameters
    ----------
    volume
        The array.
    config
        The configuration of zarr-python under which it is opened and read.
    """

    def __init__(self, volume: Volume, config: Mapping[str, Any]) -> None:
        self._config = dict(config)
        self._needs_one_piece = self._config.get(_PIPELINE) == _ZARRS
        with self.configured():
            self._array: zarr.Array[Any] = zarr.open_array(volume.path, mode="r")

    def view(self, source: Slices) -> Array | None:  # noqa: ARG002 - the contract's
        """See Stored; everything is read."""
        return None

    def read(self, source: Slices, out: Array, target: Slices) -> None:
        """See Stored."""
        with self.configured():
            self.fill(source, out[target])

    def configured(self) -> AbstractContextManager[Any]:
        """Return the context in which it is read, for those who read several boxes in one."""
        context: AbstractContextManager[Any] = zarr.config.set(self._config)
        return context

    def fill(self, source: Slices, out: Array) -> None:
        """Read a box into all of `out`, straight, but that zarrs writes into nothing that does not lie in one piece."""
        if self._needs_one_piece and not out.flags.c_contiguous:
            np.copyto(out, self._array.get_basic_selection(source))
        else:
            self._array.get_basic_selection(source, out=cpu.NDBuffer.from_numpy_array(out))

    def close(self) -> None:
        """See Stored; it holds no files."""


def torch_zarr(task: Task) -> TorchLoading:
    """Return what reads blocks by torch's loader and zarr-python."""
    return TorchLoading(task, BlockReader(task, partial(ZarrArray, config=ONE_CORE)))


def torch_zarrs(task: Task) -> TorchLoading:
    """Return what reads blocks by torch's loader, zarr-python and zarrs."""
    return TorchLoading(task, BlockReader(task, partial(ZarrArray, config=zarrs_pipeline(1))))
