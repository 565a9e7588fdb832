"""The checksums of converted samples, from the moment a sample is complete to the catalogue's file of them.

A sample's checksums are taken from its files as soon as it has its final name, while their pages are still in memory,
and are kept beside it in a hidden file of one row. At the end of the run the rows of all samples are merged into one
file. So a run that was killed loses the checksums of one sample at most, and no more than one row group of them is
ever held.

They are read back and not taken from the writer: zarr-python and libhdf5 do not hand out what they store, and what
counts is what a reader will find. Each chunk is decoded too, which proves it against the checksum that both formats
store within it, so that damage between the writer and the file is not recorded as good.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from voxload.catalog.checksums import checksums_name, recording, sum_volume
from voxload.catalog.places import CATALOG_NAME
from voxload.convert.manifest import AXES, read_manifest
from voxload.convert.write.catalogue import Complete, volume_entries
from voxload.convert.write.writer import writing
from voxload.errors import InternalError
from voxload.files.atomic import TEMPORARY_MARK, remove, remove_partials
from voxload.files.records import is_own
from voxload.readers.chunks.checksumfile import ChecksumFile
from voxload.readers.chunks.checksums import ChecksumRow
from voxload.readers.protocol import Location

_MARK = f"{TEMPORARY_MARK}checksums"


class SampleChecksums:
    """The checksums in one folder of converted samples; one process at a time, which holds the folder's lock.

    Parameters
    ----------
    folder
        The folder.

    Raises
    ------
    DataError
        When the folder's file of checksums is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.path = folder / checksums_name(Path(CATALOG_NAME))
        self._file = ChecksumFile(os.fspath(self.path)) if is_own(self.path) else None
        self._origins = self._file.origins() if self._file else {}

    def has(self, sample: Complete) -> bool:
        """Tell whether the folder's file has the checksums of this very state of a sample."""
        return self._origins.get(self._key(sample)) == sample[1].origin

    def is_summed(self, sample: Complete) -> bool:
        """Tell whether the checksums of this very state of a sample are in the folder's file or beside the sample."""
        if self.has(sample):
            return True
        path, manifest = sample
        if not is_own(_beside(path)):
            return False
        row = ChecksumFile(os.fspath(_beside(path))).find(*self._key(sample))
        return row is not None and row.origin == manifest.origin

    def sum(self, sample: Complete) -> None:
        """Read a sample back and keep the checksums of its chunks beside it.

        Raises DataError when a chunk cannot be decoded, StorageError when the folder takes no file.
        """
        path, manifest = sample
        location = Location(
            os.fspath(path), manifest.dataset, axes=AXES, shape=tuple(manifest.shape), dtype=manifest.dtype
        )
        row = ChecksumRow(*self._key(sample), manifest.origin, sum_volume(location))
        with recording(_beside(path)) as add:
            add(row)

    def merge(self, samples: Sequence[Complete]) -> None:
        """Write the folder's file anew from those of all `samples`, which are summed; nothing to do if it has them."""
        if len(self._origins) == len(samples) and all(map(self.has, samples)):
            return
        with recording(self.path) as add:
            for sample in sorted(samples, key=self._key):
                path = sample[0]
                kept = self._file if self._file and self.has(sample) else ChecksumFile(os.fspath(_beside(path)))
                row = kept.find(*self._key(sample))
                if row is None:
                    raise InternalError(f"{path}", found="no checksums to merge", remedy="please report it")
                add(row)

    def sum_at(self, path: Path) -> None:
        """Sum the volume that has just become complete at `path`."""
        manifest = read_manifest(path)
        if manifest is not None:
            self.sum((path, manifest))

    def remove_leftovers(self) -> None:
        """Remove what is kept beside samples, and what processes left that were killed while they wrote checksums."""
        with writing(self._folder):
            remove_partials(self.path)
            for pattern in (f".*{_MARK}*", f"*/.*{_MARK}*"):  # a volume is in the folder, or in one of its folders
                for path in self._folder.glob(pattern):
                    remove(path)

    def _key(self, sample: Complete) -> tuple[str, str]:
        """Return under which id and dataset a volume's checksums are kept, as `Entry.volume` says."""
        path, manifest = sample
        return volume_entries(path, manifest, self._folder)[0].volume, manifest.dataset


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}{_MARK}")
