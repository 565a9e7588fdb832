"""Dlio: the synthetic HDF5 files of the DLIO benchmark.

``records_<i>`` (samples, *extents), of which several hold a share of each sample, and ``labels`` (samples,); earlier
versions wrote one dataset ``records`` of images. Source: argonne-lcf/dlio_benchmark, data_generator/hdf5_generator.py.
"""

from __future__ import annotations

import re
from dataclasses import replace

from voxload.convert.sources.cubeaxes import cube_axes
from voxload.convert.sources.hdf5cube import describe_dataset
from voxload.convert.sources.hdf5slab import Hdf5Slab, check_slabs
from voxload.convert.sources.hdf5targets import read_numbers
from voxload.convert.sources.hdf5tree import hdf5_tree
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.partnames import part_name
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import RawCube, Source
from voxload.convert.sources.volumenames import check_extents, chosen
from voxload.errors import DataError, UsageError

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
        cubes = {name: _describe(probe, name, hints) for name in chosen(f"{probe.path}", records, hints)}
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
    order = cube_axes(subject, stored.shape[1:], given=hints.axes)
    return describe_dataset(probe.path, name, stored, order=order, fixed=(0,))
