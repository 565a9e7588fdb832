"""ZarrArray: an array through zarr-python, by its own pipeline of codecs or by that of zarrs; its loaders."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import zarr
from zarr.core.buffer import cpu

from voxload.benchmark.loaders.block_loading import TorchLoading
from voxload.benchmark.loaders.blocks import BlockReader, Slices
from voxload.benchmark.loaders.protocol import Task, Volume
from voxload.readers.protocol import Volume as Array

_ONE_CORE = {"threading.max_workers": 1}
"""One core for each worker process: more threads would take turns."""
_ZARRS = {
    "codec_pipeline.path": "zarrs.ZarrsCodecPipeline",
    "codec_pipeline.strict": True,
    "codec_pipeline.chunk_concurrent_maximum": 1,
}


class ZarrArray:
    """See Stored.

    Parameters
    ----------
    volume
        The array.
    is_zarrs
        Whether zarrs decodes; zarr-python does otherwise.
    """

    def __init__(self, volume: Volume, *, is_zarrs: bool) -> None:
        self._config: dict[str, Any] = _ONE_CORE | (_ZARRS if is_zarrs else {})
        self._needs_one_piece = is_zarrs
        with zarr.config.set(self._config):
            self._array: zarr.Array[Any] = zarr.open_array(volume.path, mode="r")

    def view(self, source: Slices) -> Array | None:  # noqa: ARG002 - the contract's
        """See Stored; everything is read."""
        return None

    def read(self, source: Slices, out: Array, target: Slices) -> None:
        """See Stored; straight into `out`, except that zarrs writes into nothing but what lies in one piece."""
        wanted = out[target]
        with zarr.config.set(self._config):
            if self._needs_one_piece and not wanted.flags.c_contiguous:
                np.copyto(wanted, self._array.get_basic_selection(source))
            else:
                self._array.get_basic_selection(source, out=cpu.NDBuffer.from_numpy_array(wanted))

    def close(self) -> None:
        """See Stored; it holds no files."""


def torch_zarr(task: Task) -> TorchLoading:
    """Return what reads blocks by torch's loader and zarr-python."""
    return TorchLoading(task, BlockReader(task, partial(ZarrArray, is_zarrs=False)))


def torch_zarrs(task: Task) -> TorchLoading:
    """Return what reads blocks by torch's loader, zarr-python and zarrs."""
    return TorchLoading(task, BlockReader(task, partial(ZarrArray, is_zarrs=True)))
