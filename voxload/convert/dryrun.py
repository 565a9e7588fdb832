"""PlannedConversion: what a conversion would do, for people and programs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import prod
from pathlib import Path

from voxload.convert.options import ConvertOptions
from voxload.convert.plan.compressibility import Measured
from voxload.convert.plan.planning import plan_volumes
from voxload.convert.plan.volumeplan import VolumePlan
from voxload.convert.run import check_folders, resolved
from voxload.convert.write.completion import is_complete


@dataclass(frozen=True, slots=True)
class PlannedVolume:
    """One volume that would be stored."""

    path: Path
    """Where it would be."""
    samples: int
    """Samples in it."""
    shape: tuple[int, ...]
    """Extents (C, D, H, W)."""
    dtype: str
    """numpy type string."""
    chunks: tuple[int, ...]
    """Extents of a chunk."""
    shards: tuple[int, ...] | None
    """Extents of a shard; None where all chunks share one file."""
    compression: str
    """How chunks are compressed."""
    decoded_bytes: int
    """Bytes of voxels."""
    stored_bytes: int
    """Bytes in storage, estimated from a few chunks."""
    is_complete: bool
    """Whether it is there already."""
    variables: tuple[str, ...] = ()
    """The variables that its channels are made of, in their order; empty where it is one cube as it was."""

    @property
    def files(self) -> int:
        """Files of voxels."""
        if self.shards is None:
            return 1
        return prod(-(-extent // width) for extent, width in zip(self.shape, self.shards, strict=True))


@dataclass(frozen=True, slots=True)
class PlannedConversion:
    """What a conversion would do."""

    volumes: tuple[PlannedVolume, ...]
    """What would be stored."""
    samples: int
    """Samples in all volumes."""
    ignored: tuple[str, ...]
    """Files that are no raw cubes."""
    memory: int
    """Bytes of memory that it would take, projected."""
    seconds: float
    """Time that encoding would take, from the speed at which a few chunks were encoded; a slow disk takes longer."""


def plan_conversion(
    src: str | os.PathLike[str], dst: str | os.PathLike[str], options: ConvertOptions | None = None
) -> PlannedConversion:
    """Say what `convert` would do with the same arguments; nothing is written. Raises what planning it raises."""
    options = resolved(options or ConvertOptions())
    source, target = Path(src), Path(dst)
    check_folders(source, target)
    plan = plan_volumes(source, target, options)
    share = options.share
    mine = [volume for number, volume in enumerate(plan.volumes) if share is None or share.takes(number)]
    volumes = [_planned(volume, plan.measured[volume.kind]) for volume in mine]
    busy = sum(
        planned.decoded_bytes / plan.measured[volume.kind].bytes_per_second
        for volume, planned in zip(mine, volumes, strict=True)
        if not planned.is_complete
    )
    return PlannedConversion(
        tuple(volumes),
        samples=sum(volume.samples for volume in volumes),
        ignored=plan.ignored,
        memory=max((volume.tiling.projected for volume in mine), default=0),
        seconds=busy / (options.workers or 1),
    )


def _planned(volume: VolumePlan, measured: Measured) -> PlannedVolume:
    manifest = volume.manifest
    return PlannedVolume(
        volume.final,
        samples=len(manifest.members),
        shape=manifest.shape,
        dtype=manifest.dtype,
        chunks=manifest.chunks,
        shards=manifest.shards,
        compression=manifest.compression,
        decoded_bytes=volume.decoded_bytes,
        stored_bytes=round(volume.decoded_bytes / measured.ratio),
        is_complete=is_complete(volume),
        variables=tuple(variable.name for variable in manifest.parts[0].variables),
    )
