"""Examples: the tf.train.Example messages of a TFRecord file as cubes, found without keeping their voxels.

tf.train.Example: the named features of a record, found without keeping their voxels. Source: the protocol buffers
encoding guide, and tensorflow/core/example/{example,feature}.proto: an Example holds Features, a map of names to a
list of byte strings, floats or integers each.
"""

from __future__ import annotations

import enum
import io
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from voxload.convert.sources.binary.flat import FlatFile, FlatSource, describe_flat
from voxload.convert.sources.binary.streams import SCRATCH_BYTES, Stream, StreamSource, decoding
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import Source
from voxload.convert.sources.records.tfrecord import (
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

KEPT_BYTES = 4096
"""Longest byte string that is kept at once, such as a label; longer ones are voxels."""

_MOST_VARINT = 10
"""Bytes of the longest variable-length integer of 64 bits."""


class Kind(enum.IntEnum):
    """What a feature is a list of; the values are the numbers of the fields in feature.proto."""

    NONE = 0
    """Nothing: the feature is empty."""
    BYTES = 1
    """Byte strings."""
    FLOATS = 2
    """32-bit floats."""
    INTEGERS = 3
    """64-bit integers."""


@dataclass(frozen=True, slots=True)
class ByteString:
    """One byte string of a feature."""

    start: int
    """Position of its first byte in the stream."""
    length: int
    """Number of bytes."""
    content: bytes | None
    """The bytes, where there are at most `KEPT_BYTES`."""


@dataclass(frozen=True, slots=True)
class Feature:
    """One named feature."""

    name: str
    """Its name."""
    kind: Kind = Kind.NONE
    """What it is a list of."""
    strings: tuple[ByteString, ...] = ()
    """Its byte strings."""
    floats: tuple[float, ...] = ()
    """Its floats, where they take no more than `KEPT_BYTES`."""


@dataclass(frozen=True, slots=True)
class _Field:
    """One field of a message, whose content the stream stands before."""

    number: int
    """Its number."""
    stop: int
    """Position behind its content."""


def features(stream: IO[bytes], stop: int) -> Iterator[Feature]:
    """Yield the features of the Example between where the stream stands and position `stop`.

    Entries of the map and their key and value may come in any order, as the encoding allows. Raises ValueError at
    bytes that are no message, EOFError where the stream ends.
    """
    for example in _fields(stream, stop):
        if example.number == 1:
            for entry in _fields(stream, example.stop):
                if entry.number == 1:
                    yield _entry(stream, entry.stop)


def _entry(stream: IO[bytes], stop: int) -> Feature:
    """Return one entry of the map: field 1 is the name, field 2 the feature."""
    name, value = "", Feature("")
    for field in _fields(stream, stop):
        if field.number == 1:
            name = _take(stream, min(field.stop - stream.tell(), KEPT_BYTES)).decode()
        elif field.number == 2:
            value = _feature(stream, field.stop)
    return Feature(name, value.kind, value.strings, value.floats)


def _feature(stream: IO[bytes], stop: int) -> Feature:
    """Return a feature without its name; of two lists the last one counts, as the encoding says of a oneof."""
    found = Feature("")
    for field in _fields(stream, stop):
        if field.number == Kind.BYTES:
            found = Feature("", Kind.BYTES, strings=tuple(_strings(stream, field.stop)))
        elif field.number == Kind.FLOATS:
            found = Feature("", Kind.FLOATS, floats=_floats(stream, field.stop))
        elif field.number == Kind.INTEGERS:
            found = Feature("", Kind.INTEGERS)
    return found


def _strings(stream: IO[bytes], stop: int) -> Iterator[ByteString]:
    for field in _fields(stream, stop):
        start = stream.tell()
        length = field.stop - start
        yield ByteString(start, length, _take(stream, length) if length <= KEPT_BYTES else None)


def _floats(stream: IO[bytes], stop: int) -> tuple[float, ...]:
    """Return the floats of a list, packed or one by one; none of a list that is too long for targets."""
    if stop - stream.tell() > KEPT_BYTES:
        return ()
    content = b"".join(_take(stream, field.stop - stream.tell()) for field in _fields(stream, stop))
    return tuple(float(value) for value in np.frombuffer(content, "<f4"))


def _fields(stream: IO[bytes], stop: int) -> Iterator[_Field]:
    """Yield the fields of a message up to position `stop`; what the caller leaves of one is skipped."""
    while stream.tell() < stop:
        tag = _varint(stream)
        length = _length(stream, tag & 7)
        field = _Field(tag >> 3, stream.tell() + length)
        if field.stop > stop or field.number == 0:
            raise ValueError(f"a field of {length} bytes at byte {stream.tell()} that does not fit its message")
        yield field
        stream.seek(field.stop)


def _length(stream: IO[bytes], wire: int) -> int:
    """Return the bytes of a field's content; a variable-length integer is skipped here and counts as none."""
    if wire == 0:
        _varint(stream)
        return 0
    if wire == 2:
        return _varint(stream)
    if wire in (1, 5):
        return 8 if wire == 1 else 4
    raise ValueError(f"wire type {wire} at byte {stream.tell()}, which no Example has")


def _varint(stream: IO[bytes]) -> int:
    """Return a variable-length integer, seven bits a byte, lowest first."""
    value = 0
    for place in range(_MOST_VARINT):
        byte = _take(stream, 1)[0]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value
    raise ValueError(f"an integer of more than {_MOST_VARINT} bytes at byte {stream.tell()}")


def _take(stream: IO[bytes], count: int) -> bytes:
    content = stream.read(count)
    if len(content) < count:
        raise EOFError(f"the end of the file at byte {stream.tell()}")
    return content


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
