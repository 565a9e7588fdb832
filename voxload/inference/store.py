"""PredictionStore: the folder of predicted volumes, which all ranks write together and which appears whole.

Chunking: how a volume of predictions is stored so that each rank writes files of its own; pure. A file holds one
shard, and a rank writes its own block alone. So every inner bound of the grid's blocks has to be a bound of shards
too, and shards are as large as that allows: the greatest common divisor of the inner bounds.

With NIfTI, the folder holds an image for each sample instead, which one rank makes of what all have written.

One Zarr v3 group a sample, as `voxload convert` writes them, with one array of classes. Of each sample its own, and not
one array for all: extents may differ, a catalogue's rows name one volume each, and a sample can be copied by itself.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import torch.distributed as dist
import zarr
from numpy.typing import NDArray
from zarr.codecs import BloscCodec, BloscShuffle, Crc32cCodec

from voxload.catalog.places import CATALOG_NAME
from voxload.catalog.table import Catalog, Entry
from voxload.convert.manifest import stored_bytes
from voxload.errors import InternalError, StorageError, UsageError, VoxloadError
from voxload.files.atomic import publish, remove_partials, sync, temporary_beside
from voxload.files.names import short_name
from voxload.geometry import SPATIAL_AXES
from voxload.grid import ProcessGrid
from voxload.inference.model import Extents
from voxload.inference.nifti import SUFFIX, is_prediction, nibabel, write_nifti
from voxload.inference.plan import NIFTI, ZARR
from voxload.launch.collectives import all_gathered

_CHUNKS = range(16, 65)
"""Extents of a chunk that others read well: smaller ones are many, larger ones are decoded for a few voxels."""
_MOST_SHARDS = 4096
"""Files of one sample beyond which a file system suffers more than the predictions are worth."""


@dataclass(frozen=True, slots=True)
class Chunking:
    """Extents (d, h, w) of what is stored together."""

    shards: tuple[int, ...]
    """Of a file; the last along an axis may be smaller."""
    chunks: tuple[int, ...]
    """Of what is compressed together inside a file; divides `shards`."""

    @classmethod
    def of(cls, grid: ProcessGrid, shape: Sequence[int]) -> Chunking:
        """Return shards of a volume of `shape` that each lie in one block of `grid`.

        Raises UsageError when blocks are so uneven that these would be too many.
        """
        shards = tuple(math.gcd(*(cut[1:-1] or cut[1:])) for cut in grid.bounds(shape))
        count = math.prod(-(-extent // width) for extent, width in zip(shape, shards, strict=True))
        if count > max(_MOST_SHARDS, grid.group_size):
            raise UsageError(
                f"volumes of {tuple(shape)} cut by {grid.spatial}",
                found=f"blocks so uneven that ranks which share no file would write {count} of them a sample",
                expected=f"{_MOST_SHARDS} or fewer",
                remedy="choose --spatial such that it divides the extents",
            )
        return cls(shards, tuple(map(_chunk, shards)))


def _chunk(width: int) -> int:
    """Return the largest divisor of a shard's extent that makes a good chunk; all of it where there is none."""
    return max((size for size in _CHUNKS if width % size == 0), default=width)


PREDICTIONS = "predictions"
"""Name of the folder in the output folder, and of the dataset in its catalogue."""


class PredictionStore:
    """Classes of voxels on their way to a folder; every rank makes one at the same point. Used by one thread.

    Until `publish` returns, nothing is visible under the folder's final name. What was there before is replaced.

    Parameters
    ----------
    output
        Folder that the folder of predictions goes to; all ranks see it.
    extents
        Extents (D, H, W) of each sample.
    grid
        The ranks.
    dtype
        Type of the stored classes.
    sources
        What the catalogue says of the volume that each sample is predicted from.
    form
        ``zarr``, or ``nifti``: one file a sample, made of the other when all ranks have written their blocks.

    Raises
    ------
    UsageError
        When blocks are too uneven to be written by ranks that share no file, a folder of another kind is in the way, or
        there is no nibabel to write NIfTI.
    StorageError
        When the storage refuses.
    """

    def __init__(
        self,
        output: Path,
        extents: Mapping[str, Extents],
        grid: ProcessGrid,
        *,
        dtype: np.dtype[Any],
        sources: Mapping[str, Entry],
        form: str = ZARR,
    ) -> None:
        self._grid, self._dtype, self._extents = grid, dtype, dict(extents)
        self._sources, self._form = dict(sources), form
        if form == NIFTI:
            nibabel()
        self._chunkings = {shape: Chunking.of(grid, shape) for shape in set(self._extents.values())}
        self._final = output / PREDICTIONS
        if self._final.exists() and not _holds_predictions(self._final):
            raise UsageError(
                f"{self._final}", found="something else there", expected="no folder, or one of earlier predictions"
            )
        self._temporary = self._begin()
        with _writing(self._temporary):
            for sample in self._mine:
                self._create(sample)
        _wait()

    def write(self, sample: str, classes: NDArray[Any]) -> None:
        """Write this rank's block ``(d, h, w)`` of a sample."""
        box = self._grid.block(self._extents[sample])
        path = self._temporary / _name(sample)
        with _writing(path):
            # Every chunk is stored, those of background too: for voxload a missing chunk is an error.
            config: Any = {"order": "C", "write_empty_chunks": True}
            array = zarr.open_array(path / PREDICTIONS, mode="r+", zarr_format=3, config=config)
            array[box.slices] = classes

    def publish(self) -> None:
        """Give the folder its catalogue, or images, and its final name, once every rank has written its blocks."""
        _wait()
        if self._form == NIFTI:
            with _writing(self._temporary):
                for sample in self._mine:
                    self._make_image(sample)
            _wait()
        if self._grid.rank == 0:
            with _writing(self._final):
                if self._form != NIFTI:
                    Catalog.from_entries(map(self._entry, self._extents), self._temporary).write(
                        self._temporary / CATALOG_NAME
                    )
                sync(self._temporary)
                publish(self._temporary, self._final)
        _wait()

    def _begin(self) -> Path:
        """Return the temporary folder, made by rank 0 in place of those that killed runs left."""
        temporary = temporary_beside(self._final)
        if self._grid.rank == 0:
            with _writing(self._final):
                self._final.parent.mkdir(parents=True, exist_ok=True)
                remove_leftovers(self._final.parent)
                temporary.mkdir()
        # A name that nobody can tell beforehand; each rank puts it into the folder that it was given itself.
        told = all_gathered(temporary.name if self._grid.rank == 0 else "", str)[0]
        if told in {"", ".", ".."} or Path(told).name != told:
            raise InternalError("rank 0", found=f"{told!r}", expected="a name in its folder")
        return self._final.parent / told

    @property
    def _mine(self) -> list[str]:
        """The samples whose files this rank begins and ends."""
        return sorted(self._extents)[self._grid.rank :: self._grid.world_size]

    def _make_image(self, sample: str) -> None:
        """Put a file in the place of a sample's array."""
        path = self._temporary / _name(sample)
        array = zarr.open_array(path / PREDICTIONS, mode="r", zarr_format=3)
        write_nifti(
            path.with_suffix(SUFFIX),
            lambda first, stop: np.asarray(array[first:stop]),
            source=self._sources[sample],
            dtype=self._dtype,
            chunk=array.chunks[0],
        )
        shutil.rmtree(path)

    def _create(self, sample: str) -> None:
        """Make a sample's array, without voxels."""
        chunking = self._chunkings[self._extents[sample]]
        zarr.create_group(self._temporary / _name(sample), zarr_format=3).create_array(
            PREDICTIONS,
            shape=self._extents[sample],
            chunks=chunking.chunks,
            shards=chunking.shards,
            dtype=self._dtype,
            compressors=[
                BloscCodec(cname="lz4", clevel=5, shuffle=BloscShuffle.bitshuffle, typesize=self._dtype.itemsize),
                Crc32cCodec(),  # blosc itself does not notice a flipped bit
            ],
            fill_value=0,
            dimension_names=list(SPATIAL_AXES.lower()),
        )

    def _entry(self, sample: str) -> Entry:
        """Return a sample's row of the catalogue."""
        name, shape = _name(sample), self._extents[sample]
        nbytes = stored_bytes(self._temporary / name, PREDICTIONS)
        found = Entry(sample, name, PREDICTIONS, shape, self._dtype.str, SPATIAL_AXES, nbytes)
        source = self._sources[sample]
        return replace(
            found, universe=source.universe, origin=source.origin, spacing=source.spacing, affine=source.affine
        )


def remove_leftovers(output: Path) -> None:
    """Remove what runs that were killed left in an output folder: one run at a time writes there."""
    remove_partials(output / PREDICTIONS)


def _holds_predictions(folder: Path) -> bool:
    """Tell whether a folder is one of earlier predictions: with a catalogue, or of nothing but their images.

    Images of others, such as what somebody drew by hand, are not to be replaced.
    """
    if (folder / CATALOG_NAME).is_file():
        return True
    there = list(folder.iterdir()) if folder.is_dir() else []
    return bool(there) and all(map(is_prediction, there))


def _name(sample: str) -> str:
    """Return the name of a sample's folder: ids may hold what names of folders may not."""
    return f"{short_name(quote(sample, safe='', errors='surrogatepass'))}.zarr"


def _wait() -> None:
    """Wait until all ranks are here."""
    if dist.is_initialized():
        dist.barrier()


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn what the system raises while `path` is written into a StorageError of one line."""
    try:
        yield
    except VoxloadError:
        raise
    except OSError as error:
        text = os.strerror(error.errno) if error.errno else str(error).splitlines()[0]
        raise StorageError(
            f"writing {path}", found=text, remedy="make room or choose another --output, then start again"
        ) from error
