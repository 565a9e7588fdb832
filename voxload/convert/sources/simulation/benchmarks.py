"""Files of input and compression benchmarks: the headerless fields of SDRBench, the random samples of DLIO.

SdrBench: the headerless fields of SDRBench, the Scientific Data Reduction Benchmarks. ``<n>x<n>x<n>/<field>.f32`` or
``<field>_<n>_<n>_<n>.f32``; ``.f64`` and ``.d64`` are double. Source: the file lists of https://sdrbench.github.io
and of its mirror at huggingface.co/sdrbench.

Dlio: the synthetic HDF5 files of the DLIO benchmark. ``records_<i>`` (samples, *extents), of which several hold a
share of each sample, and ``labels`` (samples,); earlier versions wrote one dataset ``records`` of images. Source:
argonne-lcf/dlio_benchmark, data_generator/hdf5_generator.py.
"""

from __future__ import annotations

import re
from dataclasses import replace

from voxload.convert.sources.arrays.hdf5cube import Hdf5Slab, check_slabs, describe_dataset
from voxload.convert.sources.arrays.hdf5targets import read_numbers
from voxload.convert.sources.arrays.headerless import has_signature, headerless_file
from voxload.convert.sources.axes import check_layout_names, cube_axes
from voxload.convert.sources.binary.flat import FlatSource, describe_flat
from voxload.convert.sources.hints import Headerless, Hints
from voxload.convert.sources.names import check_extents, chosen_datasets, part_name
from voxload.convert.sources.probe import Probe, hdf5_tree
from voxload.convert.sources.protocol import RawCube, Source
from voxload.errors import DataError, UsageError

_DTYPES = {".f32": "<f4", ".f64": "<f8", ".d64": "<f8"}
_FOLDER = re.compile(r"(?:.*[-_])?(\d+)x(\d+)x(\d+)")
_FILE = re.compile(r"(?P<field>.+)[-_](\d+)([x_])(\d+)\3(\d+)")

Extents = tuple[int, int, int]


class SdrBench:
    """Fields of SDRBench; all those of a folder are volumes of one sample."""

    name = "SDRBench"
    is_generic = False
    is_headerless = True
    """Whether the caller may say more of a file with --shape, --dtype and --order."""

    def claims(self, probe: Probe) -> bool:
        """Tell whether a ``.f32``, ``.f64`` or ``.d64`` file has no signature, and extents in its name or folder's.

        A wrong size is then a broken file, and no other kind.
        """
        is_named = probe.path.suffix in _DTYPES and any(_extents(probe))
        return is_named and not has_signature(probe)

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return the one field.

        Raises
        ------
        UsageError
            When the name and the folder differ, or the extents do: SDRBench lists them fastest first of some data
            sets and slowest first of others.
        DataError
            When the file has not exactly the size of the field.
        """
        file = headerless_file(probe.path, hints.headerless or _facts(probe), hints)
        match = _FILE.fullmatch(probe.path.stem)
        field = match["field"] if match else probe.path.stem
        return (FlatSource(replace(describe_flat(file), dataset=field, sample="."), file),)


def _extents(probe: Probe) -> tuple[Extents | None, Extents | None]:
    """Return the extents that the name of the file says, and those of its folder."""
    name, folder = _FILE.fullmatch(probe.path.stem), _FOLDER.fullmatch(probe.path.parent.name)
    by_name = (int(name[2]), int(name[4]), int(name[5])) if name else None
    by_folder = (int(folder[1]), int(folder[2]), int(folder[3])) if folder else None
    return by_name, by_folder


def _facts(probe: Probe) -> Headerless:
    by_name, by_folder = _extents(probe)
    if by_name and by_folder and by_name != by_folder:
        raise UsageError(
            f"{probe.path}",
            found=f"{by_name} in the name and {by_folder} in the folder",
            expected="one shape",
            remedy="say which with --shape and --dtype",
        )
    shape, dtype = by_name or by_folder or (1, 1, 1), _DTYPES[probe.path.suffix]
    if len(set(shape)) > 1:
        raise UsageError(
            f"{probe.path}",
            found=f"extents {shape}, of which nothing says whether the first or the last runs fastest",
            expected="a cube, or to know their order",
            remedy=f"say it with --dtype '{dtype}' and --shape, slowest extent first",
        )
    return Headerless(shape, dtype)


_RECORDS = re.compile(r"records(_\d+)?")
_LABELS = "labels"


class Dlio:
    """Files of random samples."""

    name = "DLIO synthetic HDF5"
    is_generic = False

    def claims(self, probe: Probe) -> bool:
        """Tell whether an HDF5 file holds ``labels`` and ``records`` or ``records_<i>``, and nothing else."""
        names = set(probe.hdf5.datasets) if probe.hdf5 else set()
        return _LABELS in names and len(names) > 1 and all(_RECORDS.fullmatch(name) for name in names - {_LABELS})

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return the samples in their order, each with a volume a dataset.

        Raises
        ------
        UsageError
            When records are images, or have four axes that nobody names.
        DataError
            When there are not as many records as labels.
        """
        records = sorted(set(hdf5_tree(probe).datasets) - {_LABELS}, key=lambda name: (len(name), name))
        cubes = {name: _describe(probe, name, hints) for name in chosen_datasets(f"{probe.path}", records, hints)}
        check_extents(f"{probe.path}", list(cubes.values()))
        labels = read_numbers(probe.path, _LABELS).tolist()
        for name in cubes:
            count = hdf5_tree(probe).datasets[name].shape[0]
            if count != len(labels):
                raise DataError(f"{probe.path}, dataset {name!r}", found=f"{count} records", expected=f"{len(labels)}")
        return tuple(
            Hdf5Slab(
                name,
                replace(cube, targets={"label": label}, part=part_name((k,), (len(labels),))),
                {0: k},
                missing=hints.missing,
            )
            for k, label in enumerate(labels)
            for name, cube in cubes.items()
        )


def _describe(probe: Probe, name: str, hints: Hints) -> RawCube:
    """Return what is known of each record of a dataset."""
    subject = f"{probe.path}, dataset {name!r}"
    stored = hdf5_tree(probe).datasets[name]
    if len(stored.shape) not in (4, 5):
        raise UsageError(
            subject,
            found=f"records of {len(stored.shape) - 1} axes, shape {stored.shape[1:]}",
            expected="records of three or four axes",
            remedy="generate them with three entries in DLIO's dataset.record_dims",
        )
    check_slabs(probe.path, name)
    if hints.axes is None:
        layout = "NDHW" if len(stored.shape) == len("NDHW") else "N"
        check_layout_names(subject, stored.shape, layout, namings=stored.namings)
    order = cube_axes(subject, stored.shape[1:], given=hints.axes)
    return describe_dataset(probe.path, name, stored, order=order, fixed=(0,))
