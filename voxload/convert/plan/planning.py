"""Planning: raw cubes become volumes to store. No voxel is read but those by which the compression is chosen."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from math import isfinite, prod
from pathlib import Path

from voxload.catalog.table import Entry
from voxload.convert.gridding import GriddedSource, open_cubes
from voxload.convert.layout import FILE_AIM, FILE_BYTES, Extents, Wishes, plan_layout
from voxload.convert.manifest import Manifest, Member, Part
from voxload.convert.options import ConvertOptions, Packing, StoredFormat
from voxload.convert.plan.compressibility import Measured, assumed, fitting_extent, measure, tried_bytes
from voxload.convert.plan.finding import FoundCube, find_cubes
from voxload.convert.plan.stacking import stack_cubes
from voxload.convert.plan.tiles import DECODING, LIBRARY_BYTES, TABLE, Budget, Demand, check_room, plan_tiling
from voxload.convert.plan.volumeplan import VolumePlan
from voxload.convert.sources import Source, open_sources
from voxload.convert.sources.documents import is_beside
from voxload.convert.sources.medicine.images import check_alignment
from voxload.convert.sources.names import check_extents
from voxload.convert.sources.protocol import RawCube
from voxload.convert.sources.stacked import StackedSource
from voxload.convert.targets.files import SideCars
from voxload.errors import DataError, UsageError
from voxload.files.names import inside, safe_name
from voxload.text import is_text

MANY = 256
"""Small samples from which on they share volumes: a few files burden nobody."""
FOLDER_ENTRIES = 1024
"""Volumes in one folder at most; more are spread over folders of two letters."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How everything under a source path is converted."""

    volumes: tuple[VolumePlan, ...]
    """In the order of conversion."""
    ignored: tuple[str, ...]
    """Files that are no raw cubes, relative to the source folder."""
    measured: Mapping[str, Measured]
    """How each kind of voxels is compressed, by name of the volume and type."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """What cubes must have in common to share a volume."""

    folder: str
    dataset: str
    shape: tuple[int, int, int, int]
    axes: str
    dtype: str
    is_sequential: bool

    @classmethod
    def of(cls, found: FoundCube) -> _Kind:
        cube = found.cube
        folder = os.path.dirname(found.files[0].name)  # noqa: PTH120 - a relative name
        shape, dtype = cube.volume_shape, cube.dtype.newbyteorder("<").str
        return cls(folder, cube.dataset, shape, cube.order.axes, dtype, cube.is_sequential)


def plan_volumes(src: Path, dst: Path, options: ConvertOptions) -> Plan:
    """Plan the conversion of everything under `src`; equal sources and options give equal plans, in any process.

    Raises
    ------
    NotFoundError
        When there is no such path, or no raw cube under it, or a sample lacks a variable of a stack.
    UsageError
        When options do not fit the cubes, two files would be one volume, volumes of one sample differ in their
        extents or in where their voxels lie, variables of a stack in their type, or the memory does not suffice.
    DataError
        When a file is damaged, a target is not a finite number, or samples have different targets.
    """
    found_cubes, ignored = find_cubes(
        src,
        dst,
        partial(_open, options=options),
        left_out=partial(is_beside, hints=options.hints, targets=options.targets),
        allow_outside=options.hints.allow_outside,
        variables=[variable for variables in options.stack.values() for variable in variables],
    )
    cubes = stack_cubes(found_cubes, options.stack)
    # Variables of one volume, too, must not lie elsewhere or have other targets.
    _check_extents(found_cubes)
    targets = _targets(found_cubes, None if options.targets is None else SideCars(options.targets, src))
    measured: dict[str, Measured] = {}
    for found in cubes:
        if _voxels_name(found) not in measured:
            measured[_voxels_name(found)] = _measured(found, options)
    datasets: defaultdict[str, set[str]] = defaultdict(set)
    for found in cubes:
        datasets[found.sample].add(found.cube.dataset)
    volumes = [
        _plan_volume(
            group,
            targets,
            is_shared=any(len(datasets[one.sample]) > 1 for one in group),
            options=options,
            measured=measured[_voxels_name(group[0])],
        )
        for group in _grouped(cubes, measured, options)
    ]
    return Plan(tuple(_placed(volumes, dst, options.format)), tuple(ignored), measured)


def _open(path: Path, *, options: ConvertOptions) -> tuple[Source, ...]:
    """Return the raw cubes in a file; of particles, where a grid is asked for, the cube that they make."""
    if options.gridding is None:
        return open_cubes(path, options.source_hints)
    memory = max(0, options.max_memory - LIBRARY_BYTES) // 2
    gridded = options.gridding.source_of(path, memory=memory)
    return open_sources(path, options.source_hints) if gridded is None else (gridded,)


def _check_extents(cubes: Sequence[FoundCube]) -> None:
    """Refuse samples of which no box could be cut alike from all volumes, whichever files these come from.

    One reason is other extents, and another that the same voxel lies elsewhere.
    """
    of_sample: defaultdict[str, list[RawCube]] = defaultdict(list)
    for found in cubes:
        of_sample[found.sample].append(found.cube)
    for sample, volumes in of_sample.items():
        check_extents(f"sample {sample!r}", volumes)
        check_alignment(f"sample {sample!r}", volumes)


def _measured(found: FoundCube, options: ConvertOptions) -> Measured:
    # Each look at a grid costs a pass over its particles.
    sources = found.source.sources if isinstance(found.source, StackedSource) else (found.source,)
    if any(isinstance(source, GriddedSource) for source in sources):
        return assumed(options.format, options.compression)
    # Looking at a cube takes memory before there is a plan of it: one chunk of it may be a claim of any size.
    cube, wanted = found.cube, options.compression
    extent = fitting_extent(cube, wanted, options.max_memory - LIBRARY_BYTES - cube.scratch_bytes - cube.table_bytes)
    check_room(
        {
            DECODING: cube.scratch_bytes,
            TABLE: cube.table_bytes,
            f"voxels of {cube.path} that are tried": tried_bytes(cube, wanted, extent),
        },
        options.max_memory,
    )
    return measure(found.source, options.format, wanted, extent=extent)


def _voxels_name(found: FoundCube) -> str:
    return f"{found.cube.dataset} {found.cube.dtype}"


def _targets(cubes: Sequence[FoundCube], sidecars: SideCars | None) -> dict[str, dict[str, float]]:
    """Return each sample's targets: those of its own files, and those that the caller has elsewhere.

    Refused before an hour of conversion and not after it: values that are not finite, that contradict each other, or
    that cannot share one catalogue.
    """
    found: dict[str, dict[str, float]] = {}
    for one in cubes:
        values = dict(one.cube.targets)
        if sidecars is not None:
            table = sidecars.table_of(one.cube.path)
            values |= table.find(one.sample, part=one.cube.part, number=one.number)
        mine = found.setdefault(one.sample, {})
        for name, value in values.items():
            if not isfinite(value) or mine.setdefault(name, value) != value:
                raise DataError(
                    f"target {name!r} of sample {one.sample!r} ({one.cube.path})",
                    found=f"{mine[name]} and {value}" if isfinite(value) else str(value),
                    expected="one value in all volumes of a sample" if isfinite(value) else "a finite number",
                    remedy="mend the value in the file or move the file away",
                )
    _check_targets_agree(found)
    return found


def _check_targets_agree(found: Mapping[str, Mapping[str, float]]) -> None:
    first = next(iter(found))
    names = set(found[first])
    taken = sorted(names & {column.name for column in fields(Entry)})
    if taken:
        raise DataError(
            f"target {taken[0]!r} of sample {first!r}",
            found="a name that the catalogue needs for itself",
            expected="another name",
        )
    odd = sorted(name for name in names if "\0" in name or not is_text(name))
    if odd:
        raise DataError(f"target {odd[0]!r} of sample {first!r}", found="a NUL or no UTF-8", expected="a name of text")
    for sample, values in found.items():
        if set(values) != names:
            raise DataError(
                f"sample {sample!r}",
                found=f"targets {sorted(values)}",
                expected=f"{sorted(names)}, as sample {first!r} has",
                remedy="convert them into two folders",
            )


def _grouped(
    cubes: Sequence[FoundCube], measured: Mapping[str, Measured], options: ConvertOptions
) -> Iterator[list[FoundCube]]:
    """Yield the cubes that share a volume: one, or as many small ones as make a file of the size that is aimed at."""
    stored = [_bytes(found) / measured[_voxels_name(found)].ratio for found in cubes]
    small = [size < FILE_BYTES[0] for size in stored]
    is_packed = options.pack is Packing.ALWAYS or (options.pack is Packing.AUTO and sum(small) > MANY)
    groups: defaultdict[_Kind, list[tuple[FoundCube, float]]] = defaultdict(list)
    for found, size, is_small in zip(cubes, stored, small, strict=True):
        if is_packed and is_small:
            groups[_Kind.of(found)].append((found, size))
        else:
            yield [found]
    for members in groups.values():
        count = max(1, round(FILE_AIM / (sum(size for _, size in members) / len(members))))
        for first in range(0, len(members), count):
            yield [found for found, _ in members[first : first + count]]


def _bytes(found: FoundCube) -> int:
    return prod(found.cube.shape) * found.cube.dtype.itemsize


def _plan_volume(
    group: Sequence[FoundCube],
    targets: Mapping[str, Mapping[str, float]],
    *,
    is_shared: bool,
    options: ConvertOptions,
    measured: Measured,
) -> VolumePlan:
    """Plan one volume; its place is not known yet."""
    cube = group[0].cube
    channels, depth, height, width = cube.volume_shape
    window = _window(group, options)
    shape = (channels, depth * len(group), height, width)
    layout = plan_layout(
        shape,
        cube.dtype.itemsize,
        is_sharded=options.format is StoredFormat.ZARR,
        wishes=Wishes(options.chunks, options.readers, window, round(FILE_AIM * measured.ratio)),
    )
    tiling = plan_tiling(
        layout,
        cube.dtype.itemsize,
        demand=Demand(
            (depth, height, width),
            cube.spatial_order,
            scratch_bytes=max(one.cube.scratch_bytes for one in group),
            table_bytes=max(one.cube.table_bytes for one in group),
            turned_bytes=max(one.cube.turned_bytes for one in group),
            is_sequential=cube.is_sequential,
        ),
        budget=Budget(options.max_memory, options.workers or 1),
    )
    manifest = Manifest(
        name=_volume_name(group, is_shared=is_shared),
        format=options.format.value,
        dataset=cube.dataset,
        dtype=cube.dtype.newbyteorder("<").str,
        shape=shape,
        chunks=layout.chunks,
        shards=layout.shards,
        compression=measured.compression.value,
        parts=tuple(_part(one, number * depth) for number, one in enumerate(group)),
        members=tuple(_members(group, targets, window)),
    )
    return VolumePlan(manifest, tuple(one.source for one in group), tiling, Path())


def _part(found: FoundCube, first: int) -> Part:
    cube = found.cube
    return Part(
        found.files,
        cube.dataset,
        cube.part,
        cube.order.axes,
        first,
        cube.attributes,
        found.variables,
        cube.spacing,
        cube.patient_affine,
        cube.coordinates,
    )


def _window(group: Sequence[FoundCube], options: ConvertOptions) -> Extents | None:
    """Return the extents of the samples in a volume; None where it is one sample."""
    spatial = group[0].cube.volume_shape[1:]
    if options.split is None:
        return spatial if len(group) > 1 else None
    if any(extent % width for extent, width in zip(spatial, options.split, strict=True)):
        raise UsageError(
            f"--split of {group[0].cube.path}",
            found=",".join(map(str, options.split)),
            expected=f"divisors of the cube's extents, {','.join(map(str, spatial))}",
        )
    return options.split


def _members(
    group: Sequence[FoundCube], targets: Mapping[str, Mapping[str, float]], window: Extents | None
) -> Iterator[Member]:
    """Yield the samples of a volume, cube by cube."""
    spatial = group[0].cube.volume_shape[1:]
    extents = window or spatial
    counts = [whole // width for whole, width in zip(spatial, extents, strict=True)]
    for number, found in enumerate(group):
        values = dict(targets[found.sample])
        for place in itertools.product(*map(range, counts)):
            d, h, w = (index * width for index, width in zip(place, extents, strict=True))
            start = (number * spatial[0] + d, h, w)
            if prod(counts) == 1:
                yield Member(found.sample, found.sample, start, extents, None, values)
            else:
                name = "_".join([found.sample, *_numbers(place, counts)])
                yield Member(name, found.sample, start, extents, (d, h, w), values)


def _numbers(place: Iterable[int], counts: Iterable[int]) -> Iterator[str]:
    """Yield a place's numbers, as wide as the largest of them, so that ids sort as they lie."""
    for index, count in zip(place, counts, strict=True):
        yield f"{index:0{len(str(count - 1))}}"


def _volume_name(group: Sequence[FoundCube], *, is_shared: bool) -> str:
    """Return the name of a volume's file: the sample's, with the volume's where a sample has several."""
    name = group[0].sample + (f"+{len(group) - 1}" if len(group) > 1 else "")
    return f"{name}.{group[0].cube.dataset}" if is_shared else name


def _placed(volumes: Sequence[VolumePlan], dst: Path, stored: StoredFormat) -> Iterator[VolumePlan]:
    """Yield the volumes with the places where they will be; many are spread over folders."""
    seen: set[str] = set()
    for volume in volumes:
        name = safe_name(volume.manifest.name)
        if name in seen:
            raise UsageError(
                f"volume {name!r}",
                found="two samples for it",
                expected="one name each",
                remedy="rename a file, or convert them into two folders",
            )
        seen.add(name)
        spread = hashlib.sha256(name.encode()).hexdigest()[:2] if len(volumes) > FOLDER_ENTRIES else ""
        final = inside(dst / spread, f"{name}{stored.suffix}")
        yield VolumePlan(volume.manifest, volume.sources, volume.tiling, final)
