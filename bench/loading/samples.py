"""Samples: the files of a case."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import h5py
import numpy as np
import zarr
from zarr.codecs import BytesCodec, ZstdCodec

from bench.loading.cases import HDF5, NPY, SHARDED, Case
from bench.reading.fields import Field, make_field

DATASET = "x"
"""Name of the dataset in an HDF5 file."""
_GZIP_LEVEL = 4
_ZSTD_LEVEL = 3
_SUFFIXES = {HDF5: "h5", NPY: "npy"}


def store(case: Case, folder: Path) -> tuple[Path, ...]:
    """Return the files or hierarchies of a case, which are written where they are not there."""
    base = folder / f"{case.storage}-{case.size}"
    base.mkdir(parents=True, exist_ok=True)
    paths = tuple(base / f"{number:04}.{_SUFFIXES.get(case.storage, 'zarr')}" for number in range(case.count))
    missing = [(number, path) for number, path in enumerate(paths) if not path.exists()]
    if not missing:
        return paths
    field = make_field("int16", case.size)
    for number, path in missing:
        unfinished = path.with_name(f"part-{path.name}")
        if unfinished.is_dir():
            shutil.rmtree(unfinished)
        # Samples are turns of one field: equal ones would let peers be right by chance.
        volume = np.stack([np.roll(field, (7 * number, 31 * channel), (0, 1)) for channel in range(case.shape[0])])
        _write(case, unfinished, volume)
        unfinished.replace(path)
    os.sync()  # writing back is no part of what is timed
    return paths


def files(path: Path) -> tuple[Path, ...]:
    """Return every file that a sample consists of."""
    return (path,) if path.is_file() else tuple(each for each in path.rglob("*") if each.is_file())


def _write(case: Case, path: Path, volume: Field) -> None:
    chunks = (1, case.chunk, case.chunk, case.chunk)
    if case.storage == HDF5:
        with h5py.File(path, "w") as file:
            options = {"compression": "gzip", "compression_opts": _GZIP_LEVEL, "shuffle": True}
            file.create_dataset(DATASET, data=volume, chunks=chunks, **options)
        return
    if case.storage == NPY:
        with path.open("wb") as stream:
            np.save(stream, volume)
        return
    half = max(case.size // 2, case.chunk)
    array = zarr.create_array(
        path,
        shape=volume.shape,
        dtype=volume.dtype,
        chunks=chunks,
        shards=(case.shape[0], half, half, half) if case.storage == SHARDED else None,
        serializer=BytesCodec(),
        compressors=ZstdCodec(level=_ZSTD_LEVEL),
        dimension_names=("c", "d", "h", "w"),
    )
    array[...] = volume
