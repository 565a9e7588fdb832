"""Snapshots of Gadget, Arepo, Gizmo and SWIFT in HDF5.

``Header`` holds NumPart_ThisFile, NumPart_Total (with _HighWord), MassTable, BoxSize and NumFilesPerSnapshot;
``PartTypeN`` holds Coordinates and, unless MassTable has it, Masses.
Source: GADGET-4 documentation, "Snapshot file format".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from voxload.convert.gridding.gadget import GadgetHeader, GadgetSnapshot, describe_gadget, read_parts
from voxload.convert.gridding.particles import Masses, ParticleChoice, Positions, check_masses, native
from voxload.convert.sources.probe import Probe
from voxload.errors import DataError, UsageError
from voxload.readers.faults import translated
from voxload.readers.hdf5.file import check_own_file

KIND = "Gadget HDF5"
_POSITIONS, _MASSES = "Coordinates", "Masses"
_HIGH = 2**32


def header_of(path: Path, probe: Probe | None = None) -> GadgetHeader | None:
    """Return the header of a snapshot in HDF5, None of another file; raises DataError when it is damaged."""
    tree = (probe or Probe(path)).hdf5
    facts = tree.groups.get("Header", {}) if tree else {}
    if tree is None or "NumPart_ThisFile" not in facts:
        return None
    counts = _integers(path, facts, "NumPart_ThisFile")
    if any(counts) and not any(name.endswith(f"/{_POSITIONS}") for name in tree.datasets):
        return None
    totals = _integers(path, facts, "NumPart_Total")
    high = _integers(path, facts, "NumPart_Total_HighWord") if "NumPart_Total_HighWord" in facts else (0,) * len(totals)
    files = facts.get("NumFilesPerSnapshot", 1 if totals == counts else None)
    if not isinstance(files, int | list):
        raise DataError(f"{path}, group Header", found="no NumFilesPerSnapshot", expected="the number of files")
    return GadgetHeader(
        path,
        counts=counts,
        totals=tuple(low + _HIGH * word for low, word in zip(totals, high, strict=True)),
        masses=_numbers(path, facts, "MassTable"),
        box=_box(path, facts),
        redshift=_numbers(path, facts, "Redshift")[0] if "Redshift" in facts else None,
        files=int(np.ravel(files)[0]),
    )


def _numbers(path: Path, facts: Mapping[str, Any], name: str) -> tuple[float, ...]:
    found = np.ravel(facts.get(name, []))
    if not found.size or found.dtype.kind not in "iuf":
        raise DataError(f"{path}, group Header", found=f"{name} {facts.get(name)!r}", expected="numbers")
    return tuple(float(number) for number in found)


def _integers(path: Path, facts: Mapping[str, Any], name: str) -> tuple[int, ...]:
    return tuple(int(number) for number in _numbers(path, facts, name))


def _box(path: Path, facts: Mapping[str, Any]) -> tuple[float, float, float]:
    edges = _numbers(path, facts, "BoxSize") if "BoxSize" in facts else (0.0,)
    if len(edges) not in (1, 3):
        raise DataError(f"{path}, group Header", found=f"BoxSize {edges}", expected="one length or three")
    return (edges[0], edges[0], edges[0]) if len(edges) == 1 else (edges[0], edges[1], edges[2])


@dataclass(frozen=True, slots=True)
class _Part:
    """One open file."""

    header: GadgetHeader
    file: h5py.File

    def read_positions(self, kind: int, *, run: tuple[int, int]) -> Positions:
        return native(self.file[f"PartType{kind}/{_POSITIONS}"][run[0] : run[1]])

    def read_masses(self, kind: int, *, run: tuple[int, int]) -> Masses:
        group = self.file[f"PartType{kind}"]
        if _MASSES not in group:
            return np.array([self.header.masses[kind]])
        return check_masses(self.header.path, group[_MASSES][run[0] : run[1]])


def hdf5_snapshot(header: GadgetHeader, choice: ParticleChoice | None = None) -> GadgetSnapshot:
    """Return the snapshot that a file in HDF5 with this header belongs to.

    Parameters
    ----------
    header
        Header of one of its files.
    choice
        What the caller says of it.

    Raises
    ------
    UsageError
        When several types of particles have no choice, or positions lie in other files.
    DataError
        When a file or a dataset is missing, damaged or was never written.
    """
    headers = read_parts(header, header_of)
    described = describe_gadget(headers, choice or ParticleChoice(), kind=KIND)
    chunk = max(_check(each, described.types) for each in headers)
    return GadgetSnapshot(
        replace(described, scratch_bytes=2 * chunk), headers, partial(_open_part, cache_bytes=max(2**20, chunk))
    )


@contextmanager
def _open_part(part: GadgetHeader, *, cache_bytes: int) -> Iterator[_Part]:
    """Open a file with a cache that holds a whole chunk: batches cut chunks, and none is decoded twice."""
    with translated(f"{part.path}"), h5py.File(part.path, "r", rdcc_nbytes=cache_bytes) as file:
        yield _Part(part, file)


def _check(header: GadgetHeader, types: Sequence[int]) -> int:
    """Check the datasets of a file without reading them; return the bytes of its largest chunk."""
    largest = 0
    with translated(f"{header.path}"), h5py.File(header.path, "r") as file:
        for kind in types:
            count = header.counts[kind]
            if not count:
                continue
            group = file.get(f"PartType{kind}", {})
            subject = f"{header.path}, PartType{kind}"
            if _MASSES not in group and not header.masses[kind]:
                raise DataError(subject, found="neither Masses nor a mass in MassTable", expected="masses")
            wanted = {_POSITIONS: (count, 3), **({_MASSES: (count,)} if _MASSES in group else {})}
            for name, shape in wanted.items():
                dataset = group.get(name)
                largest = max(largest, _check_dataset(f"{subject}/{name}", dataset, shape))
                check_own_file(dataset, file, f"{subject}/{name}")
    return largest


def _check_dataset(subject: str, dataset: Any, shape: tuple[int, ...]) -> int:
    """Return the bytes of a chunk of a dataset that can be read; HDF5 gives zeros for what was never written."""
    if not isinstance(dataset, h5py.Dataset):
        raise DataError(subject, found="no such dataset", expected=f"numbers of shape {shape}")
    if dataset.shape != shape or dataset.dtype.kind != "f":
        raise DataError(subject, found=f"{dataset.dtype} {dataset.shape}", expected=f"floats of shape {shape}")
    if dataset.is_virtual or dataset.external is not None:
        raise UsageError(
            subject,
            found="data in other files" if dataset.external else "a virtual dataset",
            expected="particles in the file itself",
            remedy="convert the files that it points to",
        )
    if dataset.id.get_space_status() != h5py.h5d.SPACE_STATUS_ALLOCATED:
        raise DataError(subject, found="parts that were never written", expected="every particle")
    return math.prod(dataset.chunks) * dataset.dtype.itemsize if dataset.chunks else 0
