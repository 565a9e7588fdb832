"""convert: raw cubes in, chunked samples and their catalogue out, in bounded memory.

A slab of the source is read once, in the order of its bytes, into one buffer that lies in memory as the source lies on
disk. A transposed view of that buffer is stored, chunk by chunk: axes are turned by the view, and no voxel is ever
reshaped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from voxload.catalog.generations import is_growing
from voxload.catalog.places import CATALOG_NAME
from voxload.convert.executors.array_tasks import Tasks
from voxload.convert.executors.dask_cluster import Cluster, DaskExecutor, connected
from voxload.convert.executors.local import LocalExecutor, VolumeExecutor
from voxload.convert.options import ConvertOptions, ConvertReport, Progress
from voxload.convert.plan.planning import Plan, plan_volumes
from voxload.convert.plan.volumeplan import VolumePlan
from voxload.convert.write.catalogue import Complete, complete_volumes, is_catalogued, write_catalog
from voxload.convert.write.checksums import SampleChecksums
from voxload.convert.write.completion import check_replaceable, check_same_targets, is_complete, remove_outdated
from voxload.convert.write.lock import locked
from voxload.convert.write.verifying import verify_volume
from voxload.convert.write.volume import remove_lock
from voxload.convert.write.writer import remove_leftovers, writing
from voxload.errors import UsageError


def convert(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    *,
    options: ConvertOptions | None = None,
    progress: OnProgress | None = None,
) -> ConvertReport:
    """Convert the raw cubes under `src` into samples under `dst`, with their catalogue.

    May be killed at any moment and run again: complete volumes are skipped, and of an unfinished one no chunk is
    converted twice that was recorded as stored. A volume whose source changed since is converted again. Checksums that
    were asked for are taken volume by volume; a run that does not ask for them keeps those of volumes that are still
    the same.

    Parameters
    ----------
    src
        A file, or a folder that is searched for raw cubes at every depth.
    dst
        The folder for samples and catalogue; made when there is none.
    options
        How to convert; None for the defaults.
    progress
        Called after every tile, in the calling thread.

    Raises
    ------
    UsageError, NotFoundError
        When the call cannot work; nothing was written.
    DataError
        When a source is damaged or changes while it is read; its samples do not appear. When a voxel that is verified
        differs from its source; no catalogue is written.
    StorageError
        When the destination refuses, such as a full disk; nothing half-written has a final name.
    """
    started = time.perf_counter()
    options = options or ConvertOptions()
    source, target = Path(src), Path(dst)
    if options.scheduler is not None:
        source, target = source.absolute(), target.absolute()  # its workers have other working folders
    check_folders(source, target)
    check_not_growing(target)
    with nullcontext() if options.scheduler is None else connected(options.scheduler) as cluster:
        options = resolved(options, cluster)
        plan = plan_volumes(source, target, options)
        with writing(target):
            target.mkdir(parents=True, exist_ok=True)
        with locked(target, options.share):
            return _Run(target, options, plan, progress, started, cluster).run()


def resolved(options: ConvertOptions, cluster: Cluster | None = None) -> ConvertOptions:
    """Return options with as many workers as a process may use cores, where none are named: this one or a cluster's."""
    if options.workers is not None:
        return options
    return replace(options, workers=cluster.threads if cluster else len(os.sched_getaffinity(0)))


def check_folders(src: Path, dst: Path) -> None:
    """Refuse a destination that is a file, or the source itself."""
    if dst.exists() and not dst.is_dir():
        raise UsageError(f"{dst}", found="a file", expected="a folder for the samples")
    if src.is_dir() and src.resolve() == dst.resolve():
        raise UsageError(f"{dst}", found="the source folder itself", expected="another folder")


def check_not_growing(dst: Path) -> None:
    """Refuse a folder whose catalogue was appended to, of whose rows this conversion would know nothing."""
    if is_growing(dst / CATALOG_NAME):
        raise UsageError(
            f"catalogue {dst / CATALOG_NAME}",
            found="one that is appended to",
            expected="none, or that of a conversion like this one",
            remedy="say --append, or choose another folder",
        )


@dataclass(frozen=True, slots=True)
class _Run:
    """One conversion under way; the folder's lock is held."""

    target: Path
    """The folder."""
    options: ConvertOptions
    """How to convert."""
    plan: Plan
    """What to convert."""
    progress: OnProgress | None
    """Whom to tell."""
    started: float
    """When it began."""
    cluster: Cluster | None = None
    """Whose workers write volumes; None for this process."""

    def run(self) -> ConvertReport:
        """Convert what is not complete, and catalogue what is."""
        check_same_targets(self.target, self.plan.volumes)
        Tasks(self.target, self.options.share, self.plan.volumes).begin()
        share = self.options.share
        mine = [volume for number, volume in enumerate(self.plan.volumes) if share is None or share.takes(number)]
        pending = [volume for volume in mine if not is_complete(volume)]
        done = {volume.final for volume in pending}
        skipped = [volume for volume in mine if volume.final not in done]
        with writing(self.target):
            for volume in skipped:
                remove_leftovers(volume.final)
                remove_lock(volume.final)
        for volume in pending:
            check_replaceable(volume)
        checksums = SampleChecksums(self.target)
        report = ConvertReport(
            converted=_samples(pending),
            skipped=_samples(skipped),
            ignored=self.plan.ignored,
            bytes_read=0,
            bytes_written=0,
            bytes_resumed=0,
            chunks=0,
            seconds=0.0,
            catalog=self.target / CATALOG_NAME,
            is_catalogued=False,
        )
        report = self._convert(pending, report, checksums)
        if self.options.verify:
            report = replace(report, verified=self._verify(mine))
        report = self._finish(report, checksums)
        return replace(report, seconds=time.perf_counter() - self.started)

    def _convert(
        self, pending: Sequence[VolumePlan], report: ConvertReport, checksums: SampleChecksums
    ) -> ConvertReport:
        show = ProgressCounter(sum(volume.decoded_bytes for volume in pending), self.progress)
        with closing(self._machines(checksums).convert(pending, show.advance)) as tallies:
            for tally in tallies:
                report = replace(
                    report,
                    bytes_read=report.bytes_read + tally.read,
                    bytes_written=report.bytes_written + tally.written,
                    bytes_resumed=report.bytes_resumed + tally.resumed,
                    chunks=report.chunks + tally.chunks,
                )
        return report

    def _machines(self, checksums: SampleChecksums) -> VolumeExecutor:
        threads, is_summed = self.options.workers or 1, self.options.checksums
        if self.cluster is None:
            return LocalExecutor(threads, checksums if is_summed else None)
        return DaskExecutor(self.cluster, threads, self.target if is_summed else None)

    def _verify(self, volumes: Sequence[VolumePlan]) -> int:
        """Compare volumes with their sources before they are catalogued; return how many voxels were compared."""
        show = ProgressCounter(sum(volume.decoded_bytes for volume in volumes), self.progress)
        compared = 0
        for volume in volumes:
            advance = partial(show.advance, f"{volume.manifest.name}, verified")
            compared += verify_volume(volume, advance=advance)
        return compared

    def _finish(self, report: ConvertReport, checksums: SampleChecksums) -> ConvertReport:
        """Write the catalogue, unless another task will be the last."""

        def is_whole() -> bool:
            return not report.converted and self._is_whole(checksums)

        with Tasks(self.target, self.options.share, self.plan.volumes).last(is_whole) as is_last:
            if not is_last:
                return report
            remove_outdated(self.target, self.plan.volumes)
            complete = complete_volumes(self.target)
            if self.options.checksums:
                self._sum_all(complete, checksums)
            summed = self._summed(complete, checksums)
            write_catalog(self.target, complete, summed=summed, checksums=checksums.path.name)
            checksums.remove_leftovers()
            return replace(report, is_catalogued=True, summed=len(summed))

    def _is_whole(self, checksums: SampleChecksums) -> bool:
        """Tell whether every planned volume is complete, and the catalogue the one of this folder."""
        if not (self.target / CATALOG_NAME).exists() or not all(map(is_complete, self.plan.volumes)):
            return False
        complete = complete_volumes(self.target)
        summed = self._summed(complete, checksums)
        return is_catalogued(self.target, complete, summed=summed, checksums=checksums.path.name)

    def _summed(self, complete: Sequence[Complete], checksums: SampleChecksums) -> Sequence[Complete]:
        """Return the volumes that have checksums in the catalogue."""
        return complete if self.options.checksums else [one for one in complete if checksums.has(one)]

    def _sum_all(self, complete: Sequence[Complete], checksums: SampleChecksums) -> None:
        """Take the checksums of volumes that still have none, and gather those of all."""
        left = [one for one in complete if not checksums.is_summed(one)]
        show = ProgressCounter(sum(manifest.decoded_bytes for _, manifest in left), self.progress)
        for one in left:
            checksums.sum(one)
            show.advance(one[1].name, one[1].decoded_bytes)
        checksums.merge(complete)


def _samples(volumes: Sequence[VolumePlan]) -> tuple[str, ...]:
    return tuple(sorted({member.sample for volume in volumes for member in volume.manifest.members}))


OnProgress = Callable[[Progress], None]
"""Told how far a conversion is, in the calling thread."""


@dataclass(slots=True)
class ProgressCounter:
    """Counts bytes of voxels as converted, and tells."""

    total: int
    """Bytes of voxels to convert."""
    progress: OnProgress | None
    """Whom to tell."""
    done: int = 0
    """Bytes of voxels converted, by this run or an earlier one."""

    def advance(self, name: str, size: int) -> None:
        """Count what was done of the volume of this name, and tell."""
        self.done += size
        if self.progress is not None:
            self.progress(Progress(name, self.done, self.total))
