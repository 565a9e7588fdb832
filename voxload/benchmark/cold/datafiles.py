"""DataFiles: the files that the volumes of a data set are stored in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from voxload.benchmark.workload.workload import Samples
from voxload.data.lists.samples import list_samples
from voxload.errors import NotFoundError
from voxload.readers.protocol import Location
from voxload.readers.store import is_url


@dataclass(frozen=True, slots=True)
class DataFiles:
    """Files on mounted file systems, and what is elsewhere."""

    files: tuple[str, ...]
    """Paths, each once, in the order of the samples."""
    remote: int = 0
    """Volumes behind URLs, of which this node keeps no pages."""

    @property
    def nbytes(self) -> int:
        """Bytes of all files now."""
        return sum(os.stat(file).st_size for file in self.files)  # noqa: PTH116 - strings: there may be many


def data_files(samples: Samples) -> DataFiles:
    """Return the files of a data set: those of its volumes, folders such as Zarr's with all that is in them.

    Of a folder with several arrays only that of the volume counts. Files that a file refers to, as those of a virtual
    HDF5 dataset, are not followed. Opens no volume.

    Raises
    ------
    NotFoundError
        When a volume is not there, and what `voxload.data.lists.samples.list_samples` raises.
    """
    fields = {"x": samples.dataset} if samples.dataset else None
    listed = list_samples(
        samples.location,
        fields=fields,
        targets=(),
        axes=samples.axes or None,
        allow_outside=samples.allow_outside,
    )
    found: dict[str, None] = {}
    seen: set[str] = set()
    remote = 0
    for index in range(len(listed.ids)):
        for location in listed.sample(index).locations:
            place = _place(location)
            if is_url(place):
                remote += 1
                continue
            if place not in seen:
                seen.add(place)
                found.update(dict.fromkeys(_below(place)))
    return DataFiles(tuple(found), remote)


def _place(location: Location) -> str:
    """Return the file or folder of a volume, of a hierarchy of folders the array's own; or a URL."""
    path = location.path.removeprefix("file://")
    inside = Path(path, location.dataset.strip("/"))
    return os.fspath(inside) if location.dataset and inside.is_dir() else path


def _below(place: str) -> Iterator[str]:
    """Yield a file, or all files in a folder, sorted."""
    if os.path.isdir(place):  # noqa: PTH112 - strings: there may be many
        for folder, inner, names in os.walk(place):
            inner.sort()
            for name in sorted(names):
                yield os.path.join(folder, name)  # noqa: PTH118 - as above
    elif os.path.isfile(place):  # noqa: PTH113 - as above
        yield place
    else:
        raise NotFoundError(place, found="no such file or folder", remedy="see that the data set is complete")
