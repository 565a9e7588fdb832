"""Examples of a TFRecord file as cubes: what both data sets of CosmoFlow have in common."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from voxload.convert.sources.example import ByteString, Feature, Kind, features
from voxload.convert.sources.flat import FlatFile, FlatSource, describe_flat
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import Source
from voxload.convert.sources.streams import SCRATCH_BYTES, Stream, StreamSource, decoding
from voxload.convert.sources.tfrecord import (
    Record,
    RecordCheck,
    check_record,
    head_of,
    is_gzip,
    open_records,
    records,
)
from voxload.errors import DataError
from voxload.readers.axes import AxisOrder


@dataclass(frozen=True, slots=True)
class Example:
    """One record that holds a cube."""

    record: Record
    """Where it lies."""
    voxels: ByteString
    """Where the voxels lie in it."""
    targets: Feature
    """The feature that holds the targets."""


@dataclass(frozen=True, slots=True)
class Cube:
    """What the voxels and targets of a record mean."""

    shape: tuple[int, ...]
    """Extents in the order of the bytes."""
    order: AxisOrder
    """Axes in the same order."""
    dtype: np.dtype[Any]
    """Stored type."""
    targets: Mapping[str, float]
    """Target name to value."""


def first_feature(probe: Probe) -> Feature | None:
    """Return the first feature of the first record as far as the head of the file shows it; None of other files."""
    head = head_of(probe)
    record = next(records(probe.path, io.BytesIO(head)), None) if head else None
    if record is None:
        return None
    stream = io.BytesIO(head)
    stream.seek(record.start)
    try:
        return next(features(stream, record.stop), None)
    except (ValueError, EOFError):  # another message, or a first feature without a name in sight
        return None


def read_examples(probe: Probe, *, voxels: str, targets: str) -> tuple[Example, ...]:
    """Return the records of a file; a compressed one is decoded once, in bounded memory.

    Raises DataError when the file is damaged or a record has not these two features.
    """
    path, found = probe.path, []
    with decoding(f"{path}"), open_records(path, is_compressed=is_gzip(probe)) as stream:
        for record in records(path, stream):
            by_name = {feature.name: feature for feature in features(stream, record.stop)}
            place = f"{path}, record at byte {record.start}"
            if voxels not in by_name or targets not in by_name:
                raise DataError(place, found=f"features {sorted(by_name)}", expected=f"{voxels!r} and {targets!r}")
            strings = by_name[voxels].strings
            if by_name[voxels].kind is not Kind.BYTES or len(strings) != 1:
                raise DataError(place, found=f"{len(strings)} byte strings in {voxels!r}", expected="one, the cube")
            found.append(Example(record, strings[0], by_name[targets]))
    return tuple(found)


def example_sources(
    probe: Probe, examples: tuple[Example, ...], cube_of: Callable[[str, Example], Cube], *, dataset: str
) -> tuple[Source, ...]:
    """Return one source for each record; several are numbered."""
    width, is_compressed = len(str(len(examples) - 1)), is_gzip(probe)
    sources: list[Source] = []
    for number, example in enumerate(examples):
        facts = cube_of(f"{probe.path}, record {number}", example)
        file = FlatFile(probe.path, example.voxels.start, shape=facts.shape, dtype=facts.dtype, order=facts.order)
        cube = replace(
            describe_flat(file),
            dataset=dataset,
            targets=facts.targets,
            part=f"{number:0{width}d}" if len(examples) > 1 else "",
            is_sequential=is_compressed,
            scratch_bytes=SCRATCH_BYTES if is_compressed else 0,
        )
        if is_compressed:
            sources.append(StreamSource(cube, file, _stream(probe.path, example.record)))
        else:
            sources.append(FlatSource(cube, file, partial(check_record, probe.path, example.record)))
    return tuple(sources)


def named(names: tuple[str, ...], values: tuple[float, ...]) -> dict[str, float]:
    """Return targets by name; those without a name are numbered."""
    numbered = (f"target_{number}" for number in itertools.count(len(names)))
    return dict(zip(itertools.chain(names, numbered), values, strict=False))


def _stream(path: Path, record: Record) -> Stream:
    return Stream(partial(open_records, path, is_compressed=True), record.end, partial(RecordCheck, path, record))
