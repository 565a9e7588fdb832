"""Plans of small data sets, and a check that a folder holds one of them and nothing else."""

from __future__ import annotations

from pathlib import Path

from voxload.benchmark.generate.generated import PLAN_NAME, Truth, read_plan
from voxload.benchmark.generate.plan import Contents, DatasetPlan, Kind
from voxload.benchmark.generate.storage import Codec, Extents, Storage, StoreFormat
from voxload.catalog.places import CATALOG_NAME
from voxload.data.dataset import VolumeDataset
from voxload.geometry import Box

SHAPE: Extents = (2, 9, 8, 10)
CHUNKS: Extents = (1, 4, 4, 5)
"""Extents of a chunk, of which the last ones along D are cut off."""
CHUNKED = (StoreFormat.HDF5, StoreFormat.ZARR2, StoreFormat.ZARR3)


def small_plan(stored: StoreFormat, dtype: str = "<i2", *, codec: str = "none", axes: str = "CDHW") -> DatasetPlan:
    """Return the plan of two samples, in chunks where the format has them."""
    chunks = CHUNKS if stored in CHUNKED else None
    return DatasetPlan(SHAPE, dtype, Storage(stored, axes, chunks, codec=Codec(codec)), Contents(Kind.PATTERN, 7), 2)


def samples(folder: Path) -> list[Path]:
    """Return the samples of a folder in their order."""
    return sorted(path for path in folder.iterdir() if path.name.startswith("sample_"))


def check_complete(folder: Path, plan: DatasetPlan) -> None:
    """Check that a folder holds the data set and nothing else, and that every voxel is right."""
    names = {path.name for path in folder.iterdir()} - {path.name for path in samples(folder)}
    assert names == {CATALOG_NAME, PLAN_NAME}
    assert read_plan(folder) == plan
    truth, data = Truth.of(folder), VolumeDataset(folder)
    assert data.sample_ids == tuple(plan.name(number) for number in range(plan.samples))
    try:
        for index, sample in enumerate(data.sample_ids):
            assert truth.check(sample, Box.whole(plan.spatial), data[index][0].numpy()) is None
    finally:
        data.close()
