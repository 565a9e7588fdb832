"""Block tables: which parts of which stored volumes blocks are, as a client tells the service.

A table is the bytes of each block's array, little-endian int64, then a line of JSON for each block, in which a name
that is left out has its default. A line is looked at when its block is read first: what a client claims is checked
then, and costs nothing before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from voxload.data.layout import FieldLayout
from voxload.data.units.unit import Unit
from voxload.errors import DataError
from voxload.geometry import Boundary, Box
from voxload.prefetch.line import Ints
from voxload.readers.cfpacking import Packed
from voxload.readers.protocol import ChecksumSource, Lead, Location, Missing, Window

FIELD = ""
"""What a block's sample and field are called in its key: it is the same whatever a job calls it."""
_LOCATION = {one.name: one.default for one in fields(Location)}
_DIMENSIONS = 4
"""Of a block: (C, d, h, w)."""
_SIZE = np.dtype("<i8")
MOST = 2**14
"""Blocks of a table: it is taken in while others wait, which takes some hundredths of a second."""


@dataclass(frozen=True, slots=True)
class ServedBlock:
    """One array that the service reads and keeps: a box of one stored volume."""

    location: Location
    box: Box
    """May lie outside the volume."""
    boundary: Boundary
    missing: Missing
    layout: FieldLayout
    """Shape and type that the client expects."""


def table(blocks: Sequence[ServedBlock]) -> bytes:
    """Return the table of some blocks."""
    sizes = np.array([block.layout.nbytes for block in blocks], "<i8")
    return sizes.tobytes() + b"".join(line(block) + b"\n" for block in blocks)


def divided(data: bytes, count: int) -> tuple[Ints, list[bytes]]:
    """Return the sizes and the lines of a table; raises DataError where these are not so many."""
    head = count * _SIZE.itemsize
    lines = data[head:].split(b"\n")
    if count < 1 or len(data) < head or len(lines) != count + 1 or lines[-1]:
        raise DataError("block table", found=f"{len(data)} bytes, {len(lines) - 1} lines", expected=f"{count} blocks")
    sizes = np.frombuffer(data[:head], _SIZE).astype(np.int64)
    if sizes.min() < 1:
        raise DataError("block table", found=f"a block of {sizes.min()} bytes", expected="1 or more")
    return sizes, lines[:-1]


def line(block: ServedBlock) -> bytes:
    """Return a block's line; equal lines mean equal blocks."""
    words = {
        "at": _location_words(block.location),
        "box": [*block.box.start, *block.box.stop],
        "boundary": str(block.boundary),
        "missing": str(block.missing),
        "shape": block.layout.shape,
        "dtype": block.layout.dtype.name,
    }
    return json.dumps(words, separators=(",", ":")).encode()


def identity(text: bytes) -> bytes:
    """Return what a block is the same by, whoever asks for it: the digest of its line."""
    return hashlib.blake2b(text, digest_size=16).digest()


def parsed(text: bytes) -> ServedBlock:
    """Return the block of a line; raises DataError where it is none."""
    try:
        words = json.loads(text)
        box = [_whole(one) for one in words["box"]]
        half = len(box) // 2
        return ServedBlock(
            _location(words["at"]),
            Box(tuple(box[:half]), tuple(box[half:])),
            Boundary.parse(_text(words["boundary"])),
            Missing.parse(_text(words["missing"])),
            _layout(words["shape"], words["dtype"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DataError("block table", found=repr(error)[:200], expected="a block") from error


def _location_words(location: Location) -> dict[str, Any]:
    """Return what of a location is not as by default."""
    found: dict[str, Any] = {}
    for name, default in _LOCATION.items():
        value = getattr(location, name)
        if value != default:
            found[name] = _words(value)
    return found


def _words(value: Any) -> Any:
    match value:
        case Window():
            return [*value.start, *value.shape]
        case Lead():
            return [value.sample, value.steps]
        case ChecksumSource():
            return [value.path, value.sample, value.dataset]
        case Packed():
            return value.name
        case tuple() if value and isinstance(value[0], Location):
            return [_location_words(one) for one in value]
    return value


def _location(words: Mapping[str, Any]) -> Location:
    unknown = words.keys() - _LOCATION.keys()
    if unknown:  # it would say more than is understood: another volume, perhaps
        raise ValueError(f"unknown {sorted(unknown)}")
    found: dict[str, Any] = {}
    for name, value in words.items():
        match name:
            case "shape":
                found[name] = None if value is None else tuple(_whole(one) for one in value)
            case "window":
                start, shape = (_triple(value[:3]), _triple(value[3:]))
                found[name] = Window(start, shape)
            case "lead":
                sample, steps = value
                steps = None if steps is None else tuple(_whole(one) for one in steps)
                found[name] = Lead(None if sample is None else _whole(sample), steps)
            case "checksums":
                path, sample, dataset = (_text(one) for one in value)
                found[name] = ChecksumSource(path, sample, dataset)
            case "packed":
                found[name] = Packed[_text(value)]
            case "also":
                found[name] = tuple(_location(one) for one in value)
            case "level":
                found[name] = _whole(value)
            case _:
                found[name] = None if value is None and name in ("within", "axes", "dtype") else _text(value)
    return Location(**found)


def _layout(shape: Any, dtype: Any) -> FieldLayout:
    found = FieldLayout(tuple(_whole(one) for one in shape), np.dtype(_text(dtype)))
    if found.dtype.hasobject or len(found.shape) != _DIMENSIONS or min(found.shape) < 1:
        raise ValueError(f"blocks of {found.dtype} {found.shape}")
    return found


def _triple(value: Any) -> tuple[int, int, int]:
    d, h, w = (_whole(one) for one in value)
    return d, h, w


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is no integer")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise TypeError(f"{value!r} is no text")
    return value


def unit_of(block: ServedBlock) -> Unit:
    """Return a block as a unit, of which the service and its clients make the same key."""
    return Unit(
        FIELD, (FIELD,), (block.location,), block.box, (block.layout,), boundary=block.boundary, missing=block.missing
    )
