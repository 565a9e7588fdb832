"""convert: raw cubes in, chunked samples and their catalogue out, in bounded memory.

A slab of the source is read once, in the order of its bytes, into one buffer that lies in memory as the
source lies on disk. A transposed view of that buffer is written, unit by unit: axes are turned by the view,
and no voxel is ever reshaped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import numpy as np

from voxload.catalog import CATALOG_NAME, Catalog, Entry
from voxload.convert.checksums import Complete, SampleChecksums
from voxload.convert.hdf5_writer import Hdf5Writer
from voxload.convert.lock import locked
from voxload.convert.manifest import AXES, Manifest, SourceFile, read_manifest, stored_bytes
from voxload.convert.options import ConvertOptions, ConvertReport, Progress, StoredFormat
from voxload.convert.samples import SamplePlan, plan_samples
from voxload.convert.sources.protocol import RawCube, ReadInto, volume_view
from voxload.convert.writer import Writer, remove_leftovers, writing
from voxload.convert.zarr_writer import ZarrWriter
from voxload.errors import DataError, UsageError
from voxload.geometry import Box
from voxload.readers.faults import translated
from voxload.readers.protocol import Volume

_OPEN_WRITER: dict[StoredFormat, Callable[[Path, Manifest], AbstractContextManager[Writer]]] = {
    StoredFormat.ZARR: ZarrWriter.open,
    StoredFormat.HDF5: Hdf5Writer.open,
}


def convert(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    *,
    options: ConvertOptions | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> ConvertReport:
    """Convert the raw cubes under `src` into samples under `dst`, with their catalogue.

    May be killed at any moment and run again: complete samples are skipped, an unfinished Zarr sample is taken up
    at the shard where it stopped, an unfinished HDF5 sample is started again. A sample whose source changed
    since is converted again. Checksums that were asked for are taken sample by sample; a run that does not ask for
    them keeps those of samples that are still the same.

    Parameters
    ----------
    src
        A file, or a folder that is searched for raw cubes at every depth.
    dst
        The folder for samples and catalogue; made when there is none.
    options
        How to convert; None for the defaults.
    progress
        Called after every unit, in the calling thread.

    Raises
    ------
    UsageError, NotFoundError
        When the call cannot work; nothing was written.
    DataError
        When a source is damaged or changes while it is read; its sample does not appear.
    StorageError
        When the destination refuses, such as a full disk; nothing half-written has a final name.
    """
    started = time.perf_counter()
    options = options or ConvertOptions()
    source, target = Path(src), Path(dst)
    _check_folders(source, target)
    plan = plan_samples(source, target, options)
    with writing(target):
        target.mkdir(parents=True, exist_ok=True)
    with locked(target):
        pending = [sample for sample in plan.samples if not _is_complete(sample)]
        fresh = {sample.manifest.sample for sample in pending}
        skipped = [sample for sample in plan.samples if sample.manifest.sample not in fresh]
        with writing(target):
            for sample in skipped:
                remove_leftovers(sample.final)
        for sample in pending:
            _check_replaceable(sample)
        checksums = SampleChecksums(target)
        tally = _Tally(sum(_decoded_bytes(sample.manifest) for sample in pending), progress)
        for sample in pending:
            _convert_sample(sample, options.format, tally)
            if options.checksums:
                _sum_new(checksums, sample.final)
        complete = _complete_samples(target)
        if options.checksums:
            _sum_all(checksums, complete, tally)
        summed = complete if options.checksums else [sample for sample in complete if checksums.has(sample)]
        catalog = _write_catalog(target, complete, {manifest.sample: checksums.path.name for _, manifest in summed})
        checksums.remove_leftovers()
    return ConvertReport(
        converted=tuple(sorted(fresh)),
        skipped=tuple(sample.manifest.sample for sample in skipped),
        ignored=plan.ignored,
        bytes_read=tally.read,
        bytes_written=tally.written,
        bytes_resumed=tally.resumed,
        seconds=time.perf_counter() - started,
        catalog=catalog,
        summed=len(summed),
    )


@dataclass(slots=True)
class _Tally:
    """Bytes counted while a conversion runs."""

    total: int
    """Bytes of voxels to convert."""
    progress: Callable[[Progress], None] | None
    """Whom to tell."""
    read: int = 0
    """Bytes of voxels read."""
    written: int = 0
    """Bytes stored."""
    resumed: int = 0
    """Bytes of voxels that an earlier run converted."""
    done: int = 0
    """Bytes of voxels converted, by this run or an earlier one."""

    def advance(self, sample: str, size: int) -> None:
        """Count `size` bytes of voxels as converted and tell."""
        self.done += size
        if self.progress is not None:
            self.progress(Progress(sample, self.done, self.total))


def _check_folders(src: Path, dst: Path) -> None:
    if dst.exists() and not dst.is_dir():
        raise UsageError(f"{dst}", found="a file", expected="a folder for the samples")
    if src.is_dir() and src.resolve() == dst.resolve():
        raise UsageError(f"{dst}", found="the source folder itself", expected="another folder")


def _decoded_bytes(manifest: Manifest) -> int:
    return prod(manifest.shape) * np.dtype(manifest.dtype).itemsize


def _is_complete(sample: SamplePlan) -> bool:
    """Tell whether the sample's final name holds this very conversion, whole."""
    if not sample.final.exists():
        return False
    before = read_manifest(sample.final)
    return (
        before is not None
        and before.is_same_conversion(sample.manifest)
        and before.stored_bytes == stored_bytes(sample.final, before.dataset)
    )


def _check_replaceable(sample: SamplePlan) -> None:
    """Refuse to replace what is not an older conversion of the same file."""
    name = sample.manifest.sample
    for stored in StoredFormat:
        path = sample.final.with_name(f"{name}{stored.suffix}")
        if not path.exists():
            continue
        before = read_manifest(path)
        if before is None:
            found = "something that voxload convert did not make, or that is damaged"
        elif before.source.path != sample.manifest.source.path:
            found = f"the conversion of another file, {before.source.path}"
        elif path != sample.final:
            found = f"the same sample in {stored.value}"
        else:
            continue
        raise UsageError(
            f"{path}", found=found, expected="nothing there", remedy="move it away or convert into another folder"
        )


def _convert_sample(sample: SamplePlan, stored: StoredFormat, tally: _Tally) -> None:
    with _OPEN_WRITER[stored](sample.final, sample.manifest) as writer:
        try:
            with sample.source.open() as read_into:
                _copy(sample, read_into, writer, tally)
            _check_unchanged(sample)
        except DataError:
            writer.discard()
            raise
        tally.written += writer.commit()


def _copy(sample: SamplePlan, read_into: ReadInto, writer: Writer, tally: _Tally) -> None:
    """Read tile after tile and write its units, but for those that an earlier run wrote."""
    cube = sample.source.describe()
    voxel = cube.volume_shape[0] * cube.dtype.itemsize
    tiling = sample.tiling
    buffer = np.empty(cube.volume_shape[0] * prod(tiling.tile), dtype=cube.dtype)
    for tile in tiling.tiles():
        units = list(tiling.units(tile))
        pending = [unit for unit in units if not writer.has(unit)]
        done = tile.size - sum(unit.size for unit in pending)
        tally.resumed += done * voxel
        tally.advance(sample.manifest.sample, done * voxel)
        if not pending:
            continue
        block = _block(buffer, cube, tile)
        read_into(tile, block)
        tally.read += block.nbytes
        for unit in pending:
            writer.write(unit, block[(slice(None), *unit.relative_to(tile.start).slices)])
            tally.advance(sample.manifest.sample, unit.size * voxel)


def _block(buffer: Volume, cube: RawCube, tile: Box) -> Volume:
    """Return a (C, D, H, W) view of the buffer's first bytes, laid out in memory as the source is on disk."""
    shape = cube.order.to_stored((cube.volume_shape[0], *tile.shape))
    return volume_view(cube.order, buffer[: prod(shape)].reshape(shape))


def _check_unchanged(sample: SamplePlan) -> None:
    """Refuse a source that changed while it was read: its voxels may be of two states."""
    before = sample.manifest.source
    path = Path(before.path)
    with translated(f"{path}"):
        now = SourceFile.of(path, before.name)
    if replace(now, path=before.path) != before:
        raise DataError(
            f"{path}",
            found=f"{now.size} bytes changed at {now.mtime_ns} ns",
            expected=f"the {before.size} bytes of {before.mtime_ns} ns that the conversion began with",
            remedy="convert it again when nothing writes to it",
        )


def _sum_new(checksums: SampleChecksums, final: Path) -> None:
    """Take the checksums of a sample that has just become complete."""
    manifest = read_manifest(final)
    if manifest is not None:
        checksums.sum((final, manifest))


def _sum_all(checksums: SampleChecksums, complete: Sequence[Complete], tally: _Tally) -> None:
    """Take the checksums of samples that still have none, and gather those of all."""
    left = [sample for sample in complete if not checksums.is_summed(sample)]
    tally.total += sum(_decoded_bytes(manifest) for _, manifest in left)
    for path, manifest in left:
        checksums.sum((path, manifest))
        tally.advance(manifest.sample, _decoded_bytes(manifest))
    checksums.merge(complete)


def _complete_samples(folder: Path) -> list[Complete]:
    """Return every complete sample in `folder`, whichever run converted it."""
    suffixes = {stored.suffix for stored in StoredFormat}
    manifests: list[Complete] = []
    for path in sorted(folder.iterdir()):
        if path.suffix in suffixes and not path.name.startswith("."):
            manifest = read_manifest(path)
            if manifest is not None:
                manifests.append((path, manifest))
    return manifests


def _write_catalog(folder: Path, complete: Sequence[Complete], summed: Mapping[str, str]) -> Path:
    """Write the catalogue; `summed` has the file of checksums of those samples that have some."""
    catalog = Catalog.from_entries(_entries(complete, summed), folder)
    with writing(folder / CATALOG_NAME):
        catalog.write(folder / CATALOG_NAME)
    return folder / CATALOG_NAME


def _entries(complete: Sequence[Complete], summed: Mapping[str, str]) -> list[Entry]:
    return [
        Entry(
            sample=manifest.sample,
            path=path.name,
            dataset=manifest.dataset,
            shape=manifest.shape,
            dtype=manifest.dtype,
            axes=AXES,
            stored_bytes=manifest.stored_bytes,
            targets=manifest.targets,
            checksums=summed.get(manifest.sample, ""),
        )
        for path, manifest in complete
    ]
