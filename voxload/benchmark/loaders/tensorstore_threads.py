"""tensorstore: its own threads decode some batches ahead, each asked for as one batch of reads."""

from __future__ import annotations

from voxload.benchmark.loaders.kind import Kind
from voxload.benchmark.loaders.protocol import BenchLoader, Task
from voxload.benchmark.loaders.volumes import ZARR2, ZARR3


def _make(task: Task) -> BenchLoader:
    from voxload.benchmark.loaders.tensorstore_loading import TensorstoreLoading  # noqa: PLC0415 - imports the library

    return TensorstoreLoading(task)


KIND = Kind("tensorstore", "tensorstore", ("tensorstore",), (ZARR2, ZARR3), _make, least_threads=1)
