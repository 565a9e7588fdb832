"""SamplePlan: one raw file, and the converted sample it becomes; find_samples: all of them under a path."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from voxload.catalog import Entry
from voxload.convert.layout import plan_layout
from voxload.convert.manifest import Manifest, SourceFile
from voxload.convert.options import ConvertOptions, StoredFormat
from voxload.convert.sources import Hints, open_sources
from voxload.convert.sources.protocol import Source
from voxload.convert.tiles import Tiling, plan_tiling
from voxload.errors import DataError, NotFoundError, UsageError
from voxload.readers.faults import translated

_SUFFIX = re.compile(r"\.[A-Za-z][A-Za-z0-9]*$")
_PROMISING = frozenset({".h5", ".hdf5", ".npy"})
"""Suffixes that promise a format: a file with one that is not of that format is damaged, not foreign."""


@dataclass(frozen=True, slots=True)
class SamplePlan:
    """How one raw file is converted."""

    manifest: Manifest
    """What the sample will say of itself."""
    source: Source
    """The raw cube."""
    tiling: Tiling
    """What is read and written at once."""
    final: Path
    """Where the sample will be."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How everything under a source path is converted."""

    samples: tuple[SamplePlan, ...]
    """One per raw cube, by sample id."""
    ignored: tuple[str, ...]
    """Files that are no raw cubes, relative to the source folder."""


def plan_samples(src: Path, dst: Path, options: ConvertOptions) -> Plan:
    """Look at every file under `src`, or at the file `src`, and plan its conversion; no voxel is read.

    Raises
    ------
    NotFoundError
        When there is no such path, or no raw cube under it.
    UsageError
        When a single file is of no known format, options do not fit, two files would get one sample id, or the
        memory does not suffice.
    DataError
        When a file is damaged, a target is not a finite number, or samples have different targets.
    """
    if not src.exists():
        raise NotFoundError(f"{src}", found="no such file or folder", remedy="check the path")
    root = src if src.is_dir() else src.parent
    plans: dict[str, SamplePlan] = {}
    ignored: list[str] = []
    for path in _files(src, dst):
        found = open_sources(path, Hints(options.axes, options.headerless))
        source = found[0] if found else None
        name = path.relative_to(root).as_posix()
        if source is None:
            _check_foreign(path, is_named=path == src)
            ignored.append(name)
            continue
        plan = _plan_sample(path, name, source, dst=dst, options=options)
        before = plans.setdefault(plan.manifest.sample, plan)
        if before is not plan:
            raise UsageError(
                f"sample id {plan.manifest.sample!r}",
                found=f"two files for it, {before.manifest.source.name} and {name}",
                expected="one",
                remedy="rename one, or convert them into two folders",
            )
    if not plans:
        raise NotFoundError(
            f"{src}",
            found=f"no raw cube among {len(ignored)} files",
            expected="raw universes in HDF5, .npy cubes, or headerless binary",
            remedy="describe headerless files with --shape, --dtype and --order",
        )
    _check_targets_agree(plans)
    return Plan(tuple(plans[sample] for sample in sorted(plans)), tuple(ignored))


def sample_id(name: str) -> str:
    """Return the sample id of a source: its relative path without suffix, with ``_`` for ``/``.

    >>> sample_id("21688988/universe_7.hdf5"), sample_id("density_z=0.5")
    ('21688988_universe_7', 'density_z=0.5')
    """
    return _SUFFIX.sub("", name).replace("/", "_")


def _files(src: Path, dst: Path) -> Iterator[Path]:
    """Yield the files under `src` in a fixed order; hidden ones, Zarr folders and the destination are left out."""
    if not src.is_dir():
        yield src
        return
    target = dst.resolve()
    for folder, folders, names in os.walk(src):
        here = Path(folder)
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and not name.endswith(".zarr") and (here / name).resolve() != target
        )
        for name in sorted(names):
            if not name.startswith(".") and (here / name).is_file():
                yield here / name


def _check_foreign(path: Path, *, is_named: bool) -> None:
    """Refuse a file of no known format that the caller named, or whose suffix promises a format."""
    if path.suffix in _PROMISING:
        raise DataError(
            f"{path}",
            found=f"no {'npy' if path.suffix == '.npy' else 'HDF5'} signature in its {path.stat().st_size} bytes",
            expected="a complete file",
            remedy="it is damaged: copy it again or move it away",
        )
    if is_named:
        raise UsageError(
            f"{path}",
            found="no HDF5 or npy signature",
            expected="a raw cube",
            remedy="describe headerless binary with --shape, --dtype and --order",
        )


def _check_targets_agree(plans: Mapping[str, SamplePlan]) -> None:
    """Refuse, before an hour of conversion and not after it, targets that cannot share one catalogue."""
    first, *others = plans.values()
    names = set(first.manifest.targets)
    taken = sorted(names & {column.name for column in fields(Entry)})
    if taken:
        raise DataError(
            f"target {taken[0]!r} of sample {first.manifest.sample!r}",
            found="a name that the catalogue needs for itself",
            expected="another name",
        )
    for plan in others:
        if set(plan.manifest.targets) != names:
            raise DataError(
                f"sample {plan.manifest.sample!r}",
                found=f"targets {sorted(plan.manifest.targets)}",
                expected=f"{sorted(names)}, as sample {first.manifest.sample!r} has",
                remedy="convert them into two folders",
            )


def _plan_sample(path: Path, name: str, source: Source, *, dst: Path, options: ConvertOptions) -> SamplePlan:
    cube = source.describe()
    sample = sample_id(name)
    for target, value in cube.targets.items():
        if not math.isfinite(value):
            raise DataError(
                f"target {target!r} of sample {sample!r} ({path})",
                found=str(value),
                expected="a finite number",
                remedy="mend the value in the file or move the file away",
            )
    layout = plan_layout(
        cube.volume_shape,
        cube.dtype.itemsize,
        is_sharded=options.format is StoredFormat.ZARR,
        slowest_first=cube.spatial_order,
        chunks=options.chunks,
    )
    tiling = plan_tiling(
        layout,
        cube.dtype.itemsize,
        slowest_first=cube.spatial_order,
        scratch_bytes=cube.scratch_bytes,
        max_memory=options.max_memory,
    )
    with translated(f"{path}"):
        state = SourceFile.of(path, name)
    manifest = Manifest.plan(sample, state, cube=cube, layout=layout, stored=options.format)
    return SamplePlan(manifest, source, tiling, dst / f"{sample}{options.format.suffix}")
