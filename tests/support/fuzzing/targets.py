"""Targets: the sound volumes that are damaged, and which of their bytes a checksum covers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from tests.support.damage.patches import INDEX_ENTRY
from tests.support.damage.volumes import DATASET, FORMS, Cube, Form, cube

EXTENT = 16
"""Voxels along each axis."""
CHUNK = (8, 8, 8)
VALUES: Cube = cube(EXTENT)
_CRC_BYTES = 4


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes from `start` to `stop` of a file."""

    start: int
    stop: int
    is_covered: bool
    """Whether a checksum tells when they change."""
    is_metadata: bool
    """Whether they say where the data are and how they are stored, rather than being the data."""


@dataclass(frozen=True, slots=True)
class SoundFile:
    """One file of a sound volume."""

    name: str
    """Below the folder that holds the volume."""
    data: bytes
    regions: tuple[Region, ...]
    """They cover the file without gaps."""

    def is_covered(self, place: int) -> bool:
        """Tell whether a checksum covers the byte at `place`."""
        return any(region.start <= place < region.stop and region.is_covered for region in self.regions)


@dataclass(frozen=True, slots=True)
class Target:
    """A sound volume as bytes."""

    name: str
    """What the table calls it."""
    path: str
    """The volume's name below the folder that holds it."""
    dataset: str
    files: tuple[SoundFile, ...]

    @property
    def is_hdf5(self) -> bool:
        """Whether libhdf5 reads its metadata."""
        return self.path.endswith(".h5")

    def write(self, folder: Path) -> None:
        """Write the sound volume into `folder`."""
        for file in self.files:
            path = folder / file.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.data)


def make_targets() -> list[Target]:
    """Make one volume of every form; h5py and zarr-python run here, so call it in a process of its own."""
    return [_make(form) for form in FORMS.values()]


def _make(form: Form) -> Target:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        location = form.make(folder, VALUES, CHUNK)
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        files = tuple(_sound(form, path, str(path.relative_to(folder))) for path in paths)
        return Target(form.name, Path(location.path).name, location.dataset, files)


def _sound(form: Form, path: Path, name: str) -> SoundFile:
    data = path.read_bytes()
    if form.suffix == "h5":
        regions = _hdf5(form, path, len(data))
    elif form.suffix == "npy":
        header = len(data) - VALUES.nbytes
        regions = [Region(0, header, False, True), Region(header, len(data), False, False)]  # noqa: FBT003 - a table
    elif path.name.startswith((".z", "zarr.json")):
        regions = [Region(0, len(data), False, True)]  # noqa: FBT003 - a table
    elif form.is_sharded:
        index = len(data) - 4 * INDEX_ENTRY.size - _CRC_BYTES
        regions = [Region(0, index, form.covers, False), Region(index, len(data), True, True)]  # noqa: FBT003 - a table
    else:
        regions = [Region(0, len(data), form.covers, False)]  # noqa: FBT003 - a table
    return SoundFile(name, data, tuple(regions))


def _hdf5(form: Form, path: Path, size: int) -> list[Region]:
    """Return the regions of an HDF5 file: its chunks, and all between them."""
    with h5py.File(path) as file:
        dataset = file[DATASET]
        block = file.userblock_size
        if dataset.chunks:
            found = [dataset.id.get_chunk_info(index) for index in range(dataset.id.get_num_chunks())]
            data = sorted((chunk.byte_offset + block, chunk.size) for chunk in found)
        else:
            data = [(dataset.id.get_offset(), VALUES.nbytes)]
    return list(_with_gaps(data, size, form))


def _with_gaps(data: list[tuple[int, int]], size: int, form: Form) -> Iterator[Region]:
    place = 0
    for start, length in data:
        if start > place:
            yield Region(place, start, form.covers_metadata, True)  # noqa: FBT003 - a table
        yield Region(start, start + length, form.covers, False)  # noqa: FBT003 - a table
        place = start + length
    if size > place:
        yield Region(place, size, form.covers_metadata, True)  # noqa: FBT003 - a table


def is_right(found: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> bool:
    """Tell whether a volume as read, (C, D, H, W), is what was written."""
    return found.dtype == VALUES.dtype and found.shape == (1, *VALUES.shape) and bool((found[0] == VALUES).all())
