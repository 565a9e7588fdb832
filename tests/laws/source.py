"""The laws of a source: what every raw format is held to, whatever its file looks like."""

from __future__ import annotations

import itertools
import pickle
import random
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr

from tests.support.openfiles import open_files
from voxload.catalog.table import Catalog
from voxload.convert import ConvertOptions, convert
from voxload.convert.sources import Source
from voxload.convert.sources.protocol import volume_view
from voxload.geometry import Box

Array = npt.NDArray[Any]


def coordinates(shape: tuple[int, int, int, int], dtype: str = "<i4") -> Array:
    """Return a (C, D, H, W) array in which voxel (c, d, h, w) holds its own running number, which the type can hold."""
    assert np.prod(shape) <= np.iinfo(np.int32).max
    return np.arange(np.prod(shape)).astype(dtype).reshape(shape)


def read_box(source: Source, box: Box) -> Array:
    """Read a box into an array that lies in memory as the source on disk, as a conversion does."""
    with source.open() as read_into:
        out = _blank(source, box)
        read_into(box, out)
    return out


def check_source(source: Source, volume: Array, *, seed: int = 0) -> None:
    """Hold a source to its contract; `volume` is what was written, (C, D, H, W)."""
    source = pickle.loads(pickle.dumps(source))  # noqa: S301 - a cluster's workers get it so
    cube = source.describe()
    assert cube.volume_shape == volume.shape
    assert cube.dtype == volume.dtype.newbyteorder("=")
    assert cube.dtype.isnative
    assert cube.path.exists()
    assert all(type(value) is float for value in cube.targets.values())
    before = open_files()
    _check_slabs(source, volume)
    if not cube.is_sequential:
        _check_boxes(source, volume, seed)
    # Fewer are no leak: what an earlier test left may be collected meanwhile.
    assert not open_files() - before
    # Twice: a source may be read again, for verification.
    np.testing.assert_array_equal(read_box(source, Box.whole(volume.shape[1:])), volume)


def check_converts(
    path: Path,
    volumes: Mapping[tuple[str, str], Array],
    *,
    targets: Mapping[str, Mapping[str, float]] | None = None,
    options: ConvertOptions | None = None,
) -> None:
    """Convert a file or folder; the catalogue and zarr-python must give `volumes`, (C, D, H, W), and no others.

    They are named by sample id and dataset; `targets` are those of each sample, none where there are none.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = convert(path, folder, options=options)
        assert report.ignored == (), report.ignored
        catalog = Catalog.read(report.catalog)
        assert set(catalog.keys) == set(volumes), catalog.keys
        for (sample, dataset), volume in volumes.items():
            entry = catalog.entry(sample, dataset)
            assert (entry.shape, entry.axes) == (volume.shape, "CDHW")
            assert entry.dtype == volume.dtype.newbyteorder("<").str
            assert entry.targets == (targets[sample] if targets else {})
            stored = zarr.open_array(Path(folder, entry.path, entry.dataset), mode="r")
            assert stored.dtype == volume.dtype.newbyteorder("=")
            start = entry.window or (0, 0, 0)
            stop = tuple(lo + extent for lo, extent in zip(start, volume.shape[1:], strict=True))
            assert entry.window or stored.shape == volume.shape
            np.testing.assert_array_equal(stored[(slice(None), *Box(start, stop).slices)], volume)


def _check_slabs(source: Source, volume: Array) -> None:
    """Whole planes of the slowest axis, in the order of the bytes, give the volume; some may be skipped."""
    axis = source.describe().spatial_order[0]
    extent = volume.shape[1 + axis]
    for thickness, skipped in itertools.product({1, 3, extent}, (False, True)):
        with source.open() as read_into:
            for number, first in enumerate(range(0, extent, thickness)):
                if skipped and number % 2:
                    continue
                start, stop = [0, 0, 0], list(volume.shape[1:])
                start[axis], stop[axis] = first, min(first + thickness, extent)
                box = Box(tuple(start), tuple(stop))
                out = _blank(source, box)
                read_into(box, out)
                np.testing.assert_array_equal(out, volume[(slice(None), *box.slices)])


def _check_boxes(source: Source, volume: Array, seed: int) -> None:
    """Boxes in any order, into memory of any order, equal the volume."""
    draw = random.Random(seed)
    with source.open() as read_into:
        for _ in range(20):
            start = tuple(draw.randrange(extent) for extent in volume.shape[1:])
            stop = tuple(draw.randint(lo + 1, hi) for lo, hi in zip(start, volume.shape[1:], strict=True))
            box = Box(start, stop)
            out = (
                _blank(source, box)
                if draw.random() < 0.5
                else np.empty((len(volume), *box.shape), volume.dtype.newbyteorder("="))
            )
            read_into(box, out)
            np.testing.assert_array_equal(out, volume[(slice(None), *box.slices)])


def _blank(source: Source, box: Box) -> Array:
    """Return an array for a box whose memory is in the source's order, with other bits than any read gives."""
    cube = source.describe()
    shape = cube.order.to_stored((cube.volume_shape[0], *box.shape))
    return volume_view(cube.order, np.full(shape, 1, dtype=cube.dtype))
