"""Hdf5: HDF5 files of any layout, netCDF-4 among them, whose datasets of three or four axes are volumes."""

from __future__ import annotations

from collections.abc import Container, Mapping
from contextlib import suppress
from dataclasses import replace

import h5py

from voxload.convert.manifest import only_member
from voxload.convert.sources.arrays.converted import placed
from voxload.convert.sources.arrays.hdf5cube import Hdf5Cube, Hdf5Slab, check_slabs, describe_dataset
from voxload.convert.sources.arrays.hdf5targets import read_targets
from voxload.convert.sources.arrays.series import Series, parts
from voxload.convert.sources.axes import array_axes, axes_by_count, axes_counts
from voxload.convert.sources.coordinates import coordinates_of
from voxload.convert.sources.hdf5contents import Hdf5Dataset, Hdf5Tree
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.names import candidate_datasets, check_extents, chosen_datasets
from voxload.convert.sources.probe import Probe, hdf5_tree
from voxload.convert.sources.protocol import RawCube, Source, plain_values
from voxload.errors import DataError
from voxload.files.regular import parse_json
from voxload.readers.faults import translated
from voxload.readers.registry import find_format
from voxload.text import listed

_MANIFEST = "voxload"
"""Dataset of the files that voxload itself converted, or their root attribute; it holds the manifest."""


class Hdf5:
    """Any HDF5 file: one sample, of which every dataset of three or four axes is a volume.

    Axes are the caller's, or those that labels and dimension scales name, as a data set reads them. Where samples or
    time steps are among them, each is a sample. A vector ``targets`` with an attribute ``names``, as voxload itself
    writes it, or ``unitPar`` becomes the targets.
    """

    name = "HDF5"
    is_generic = True

    def claims(self, probe: Probe) -> bool:
        """Tell whether the file is HDF5, behind a user block too."""
        return probe.is_hdf5

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return the volumes, in the order of their names.

        Raises
        ------
        DataError
            When there are none; lists what there is.
        UsageError
            When axes have no names, or such that make no volume, volumes have different extents, or several samples
            share one.
        """
        tree = hdf5_tree(probe)
        manifest = _manifest(probe, tree)
        if not hints.datasets:
            tree.datasets.values()  # in one pass
        counts = axes_counts(hints.axes)
        names = sorted(
            name for name in candidate_datasets(tuple(tree.datasets), hints) if _is_volume(tree.datasets[name], counts)
        )
        if not names:
            raise DataError(
                f"{probe.path}",
                found=f"HDF5 with {_contents(tree)}",
                expected="a dataset of three or four axes of numbers",
            )
        wanted, targets = chosen_datasets(f"{probe.path}", names, hints), _targets(probe, tree)
        axes = axes_by_count(hints.axes, [len(tree.datasets[name].shape) for name in wanted])
        cubes, series = {}, {}
        for name, volume in wanted.items():
            stored = tree.datasets[name]
            series[name] = _series(probe, name, stored, given=axes.get(len(stored.shape)))
            cube = _describe(probe, name, stored, series[name])
            cubes[name] = placed(replace(cube, dataset=volume, targets=targets), manifest)
        check_extents(f"{probe.path}", list(cubes.values()))
        found: list[Source] = []
        for index, part in parts(f"{probe.path}", series, has_targets=bool(targets)):
            for name, cube in cubes.items():
                found.append(_source(name, series[name].part_of(cube, index, part), series[name].fixed(index), hints))
        return tuple(found)


def _source(name: str, cube: RawCube, fixed: Mapping[int, int], hints: Hints) -> Source:
    """Return a dataset as a cube, or the part of it that is one sample."""
    return Hdf5Slab(name, cube, fixed, missing=hints.missing) if fixed else Hdf5Cube(name, cube, hints)


def _manifest(probe: Probe, tree: Hdf5Tree) -> object:
    """Return the manifest of a file that voxload converted; what else has that name is the caller's.

    Raises UsageError when several samples share the file.
    """
    if _MANIFEST not in tree.datasets:
        return None
    with translated(f"{probe.path}"), h5py.File(probe.path, "r") as file:
        stored = file[_MANIFEST][()]
    manifest = None
    with suppress(ValueError, TypeError):
        manifest = parse_json(stored)
    only_member(probe.path, manifest)
    return manifest


def _is_volume(item: Hdf5Dataset, counts: Container[int]) -> bool:
    return len(item.shape) in counts and item.dtype.kind in "biuf"


def _contents(tree: Hdf5Tree) -> str:
    return listed(f"{name} {item.dtype} {item.shape}" for name, item in sorted(tree.datasets.items()))


def _series(probe: Probe, name: str, stored: Hdf5Dataset, *, given: str | None) -> Series:
    subject = f"{probe.path}, dataset {name!r}"
    return Series.of(array_axes(subject, stored.shape, given=given, namings=stored.namings), stored.shape)


def _describe(probe: Probe, name: str, stored: Hdf5Dataset, series: Series) -> RawCube:
    """Return what is known of a dataset, or of each sample in it."""
    fixed = series.fixed((0, 0))
    if fixed:
        check_slabs(probe.path, name)
    cube = describe_dataset(probe.path, name, stored, order=series.cube, fixed=tuple(fixed))
    path = str(probe.path)
    along = coordinates_of(
        series.order, stored.shape, stored.coordinates, lambda one: find_format(path).read_vector(path, one)
    )
    return replace(cube, attributes=plain_values(stored.attributes), coordinates=along)


def _targets(probe: Probe, tree: Hdf5Tree) -> dict[str, float]:
    """Return the targets that the file names, if any."""
    named = tree.datasets.get("targets")
    is_named = named is not None and ("names" in named.attributes or _MANIFEST in tree.attributes)
    if named is not None and is_named and len(named.shape) == 1:
        return read_targets(probe.path, "targets")
    plain = tree.datasets.get("unitPar")
    return read_targets(probe.path, "unitPar") if plain is not None and len(plain.shape) == 1 else {}
