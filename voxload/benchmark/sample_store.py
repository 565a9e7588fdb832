"""Sample store: one generated sample from its plan to its final name, part by part."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np

from voxload.atomic import replacing
from voxload.benchmark.dataset_plan import DatasetPlan
from voxload.benchmark.flat_store import open_flat
from voxload.benchmark.hdf5_store import open_hdf5
from voxload.benchmark.storage import StoreFormat, WriteBlock
from voxload.benchmark.zarr_store import open_zarr
from voxload.convert.manifest import stored_bytes
from voxload.convert.sources.protocol import volume_view
from voxload.convert.write.writer import writing
from voxload.geometry import Box
from voxload.readers.faults import translated
from voxload.readers.protocol import Volume

_OPEN: dict[StoreFormat, Callable[[Path, DatasetPlan], AbstractContextManager[WriteBlock]]] = {
    StoreFormat.HDF5: open_hdf5,
    StoreFormat.ZARR2: open_zarr,
    StoreFormat.ZARR3: open_zarr,
    StoreFormat.NPY: open_flat,
    StoreFormat.RAW: open_flat,
}


def sample_path(plan: DatasetPlan, folder: Path, number: int) -> Path:
    """Return where a sample is when it is complete."""
    return folder / f"{plan.name(number)}{plan.storage.format.suffix}"


def write_sample(plan: DatasetPlan, folder: Path, number: int, *, tell: Callable[[int], None] | None = None) -> int:
    """Write a sample, which appears whole or not at all; return its stored bytes.

    Never is more than one part of it in memory, and what encoding that takes. `tell` hears of the bytes of each part.

    Raises StorageError when the storage refuses.
    """
    final, values = sample_path(plan, folder, number), plan.values
    with writing(final):
        with replacing(final) as temporary, _OPEN[plan.storage.format](temporary, plan) as write:
            for part in plan.parts():
                block = _empty(plan, part)
                values.fill(part, block, sample=number)
                write(part, block)
                if tell is not None:
                    tell(block.nbytes)
        return stored_sample(plan, folder, number)


def stored_sample(plan: DatasetPlan, folder: Path, number: int) -> int:
    """Return the bytes of a complete sample in storage."""
    if not plan.storage.format.is_chunked:
        return plan.sample_bytes
    path = sample_path(plan, folder, number)
    with translated(f"{path}"):
        return stored_bytes(path, plan.storage.format.dataset)


def _empty(plan: DatasetPlan, part: Box) -> Volume:
    """Return an array for all channels of a part that lies in memory as it will be stored."""
    order = plan.storage.order
    return volume_view(order, np.empty(order.to_stored((plan.shape[0], *part.shape)), plan.values.dtype))
