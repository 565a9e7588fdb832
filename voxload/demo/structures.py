"""The demo's input for segmentation: the dense structures of a universe, labelled voxel by voxel.

The density of a universe, its counts at redshift 0, is smoothed and cut at a quantile. What lies above and hangs
together by faces is a structure. Specks are dropped; the others are small or large, by their voxels:

===== ==================================================
class meaning
===== ==================================================
0     background
1     small structures
2     large structures
===== ==================================================

Why these three: where the density is high a filter sees from a few voxels, so a small U-Net learns it in a minute, and
figures that do not rise tell that something is wrong. Whether a structure is small or large shows only beyond the
reach of a few convolutions: it asks for the deep levels, and for neighbours' blocks where a volume is split. Structures
end at the border of the volume, although the universe goes on at the other side, because a network does not see that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from voxload.catalog.places import CATALOG_NAME
from voxload.catalog.table import Catalog, Entry
from voxload.demo.universes import Universe, UniverseSpec
from voxload.errors import UsageError
from voxload.files.atomic import replacing

DENSITY, LABELS = "density", "labels"
"""Names of the datasets: counts as int16 and classes as uint8, both ``(D, H, W)``."""
CLASSES = 3
"""Background, small and large structures."""
_CHUNK = 16
"""Extent of a stored chunk, or the volume's where that is less."""


@dataclass(frozen=True, slots=True)
class StructureRule:
    """What counts as a structure."""

    smoothing: float = 1.5
    """Standard deviation of the Gaussian that the density is smoothed by, in voxels."""
    quantile: float = 0.9
    """Share of the voxels that is background at least."""
    smallest: int = 8
    """Voxels of the smallest structure; less is background."""
    large: int = 200
    """Voxels of the smallest large structure."""

    def __post_init__(self) -> None:
        if self.smoothing < 0 or not 0 < self.quantile < 1 or not 1 <= self.smallest <= self.large:
            raise UsageError(
                "structures",
                found=f"smoothing {self.smoothing}, quantile {self.quantile}, sizes {self.smallest} and {self.large}",
                expected="a smoothing of 0 or more, a quantile in (0, 1), sizes of 1 or more in this order",
            )


def label_structures(density: NDArray[Any], rule: StructureRule | None = None) -> NDArray[np.uint8]:
    """Return the class of each voxel of ``(D, H, W)`` densities; safe to call from several threads."""
    rule = rule or StructureRule()
    smooth = ndimage.gaussian_filter(density.astype(np.float64), rule.smoothing, mode="nearest")
    found, _ = ndimage.label(smooth > np.quantile(smooth, rule.quantile))
    sizes = np.bincount(found.ravel())
    classes = (sizes >= rule.smallest).astype(np.uint8) + (sizes >= rule.large)
    classes[0] = 0  # what is in no structure
    labels: NDArray[np.uint8] = classes.astype(np.uint8)[found]
    return labels


def make_structures(
    folder: Path,
    *,
    count: int,
    size: int,
    seed: int,
    rule: StructureRule | None = None,
    progress: Callable[[int], object] | None = None,
) -> Path:
    """Write `count` labelled universes as HDF5 files and their catalogue, and return the catalogue's path.

    Sample i depends on `seed`, `size`, `rule` and i only. Files appear whole or not at all, in the place of what was
    there; the catalogue comes last.

    Parameters
    ----------
    folder
        Where the files go; made when missing.
    count
        How many samples.
    size
        Voxels along each axis, even.
    seed
        Seed of the collection, 0 or more.
    rule
        What counts as a structure.
    progress
        Called with 1 after each sample.

    Raises
    ------
    UsageError
        For no samples, and for sizes and seeds that no universe has.
    """
    if count < 1:
        raise UsageError("count", found=str(count), expected="1 sample or more")
    specs = [UniverseSpec(seed, index, size) for index in range(count)]
    specs[0].grid.check()
    folder.mkdir(parents=True, exist_ok=True)
    entries: list[Entry] = []
    for spec in specs:
        entries += _write(folder / f"structures-{spec.index:05}.h5", spec, rule)
        if progress is not None:
            progress(1)
    path = folder / CATALOG_NAME
    Catalog.from_entries(entries, folder).write(path)
    return path


def _write(path: Path, spec: UniverseSpec, rule: StructureRule | None) -> list[Entry]:
    """Write one sample, and return its rows of the catalogue."""
    density = np.ascontiguousarray(Universe.draw(spec).counts[..., 0])
    volumes: dict[str, NDArray[Any]] = {DENSITY: density, LABELS: label_structures(density, rule)}
    chunks = (min(_CHUNK, spec.size),) * 3
    entries = []
    with replacing(path) as temporary, h5py.File(temporary, "w") as file:
        for name, volume in volumes.items():
            stored = file.create_dataset(
                name, data=volume, chunks=chunks, compression="gzip", compression_opts=1, shuffle=True, fletcher32=True
            )
            nbytes = stored.id.get_storage_size()
            entries.append(Entry(path.stem, path.name, name, volume.shape, volume.dtype.str, "DHW", nbytes))
    return entries
