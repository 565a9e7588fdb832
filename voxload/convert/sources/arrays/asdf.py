"""ASDF: arrays of three or four axes in the blocks of an Advanced Scientific Data Format file.

ASDF: arrays of three or four axes in the tree of an Advanced Scientific Data Format file. The tree is read by the
asdf library; the places of the blocks come from their headers, because the library gives none, and voxels are read by
position. Checksums of blocks cover whole blocks and are not verified. Source: ASDF Standard, file layout, asdf-
standard.readthedocs.io.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Any, BinaryIO

from voxload.convert.sources.arrays.asdftree import AsdfArray, read_tree, tree_arrays, tree_attributes
from voxload.convert.sources.binary.flat import FlatFile
from voxload.convert.sources.binary.stored import StoredSource
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.names import check_image_names, wanted_images
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import RawCube, Source
from voxload.errors import DataError, UsageError
from voxload.files.regular import open_regular
from voxload.readers.axes import AxisOrder, resolve_axes
from voxload.readers.faults import translated

_TREE_END = re.compile(rb"\r?\n\.\.\.\r?\n")
_BLOCK_MAGIC = b"\xd3BLK"
_PREFIX = struct.Struct(">4sH")
_HEADER = struct.Struct(">I4sQQQ16s")
_STREAMED = 1
_STEP = 2**16
_MOST_TREE_BYTES = 2**26


@dataclass(frozen=True, slots=True)
class Block:
    """One block."""

    start: int
    """First byte of its data."""
    length: int
    """Bytes of its data as stored."""
    compression: str
    """Name of its compression; empty where there is none."""


def read_blocks(probe: Probe) -> list[Block]:
    """Return the blocks of a file in order; raises DataError where one is cut off."""
    blocks: list[Block] = []
    with translated(f"{probe.path}"), open_regular(probe.path) as file:
        position: int | None = _first_block(probe, file)
        while position is not None:
            file.seek(position)
            prefix = file.read(_PREFIX.size)
            if not prefix.startswith(_BLOCK_MAGIC):
                break
            _, header_bytes = _PREFIX.unpack(prefix)
            flags, compression, allocated, used, _, _ = _HEADER.unpack(file.read(_HEADER.size))
            start = position + _PREFIX.size + header_bytes
            is_last = bool(flags & _STREAMED)
            length = probe.size - start if is_last else used
            if start + length > probe.size or (used > allocated and not is_last):
                raise DataError(
                    f"{probe.path}",
                    found=f"{probe.size} bytes",
                    expected=f"{start + length} for block {len(blocks)}",
                    remedy="the file is truncated: copy it again",
                )
            blocks.append(Block(start, length, compression.rstrip(b"\0").decode("latin-1")))
            position = None if is_last else start + allocated
    return blocks


def _first_block(probe: Probe, file: BinaryIO) -> int | None:
    """Return the first byte of the first block, which follows the tree at once or after some padding."""
    head = b""
    while len(head) < _MOST_TREE_BYTES:
        part = file.read(_STEP)
        head += part
        end = _TREE_END.search(head)
        place = head.find(_BLOCK_MAGIC, end.end()) if end else -1
        if place >= 0:
            return place
        if not part:
            return None
    raise DataError(
        f"{probe.path}",
        found=f"no block in the first {len(head)} bytes",
        expected="a tree and blocks behind it",
        remedy="the file is damaged: copy it again",
    )


_MAGIC = b"#ASDF "


class Asdf:
    """Arrays in ASDF files."""

    name = "ASDF"
    is_generic = False

    def claims(self, probe: Probe) -> bool:
        """Tell whether the file begins with ``#ASDF``."""
        return probe.head.startswith(_MAGIC)

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return a cube for each array of numbers with three or four axes.

        Raises
        ------
        UsageError
            When there is none, when a block is compressed, or when an array is masked or of a layout of its own.
        DataError
            When the file is truncated or damaged.
        """
        path = probe.path
        tree = read_tree(path)
        arrays = tree_arrays(tree)
        names = _names(arrays)
        check_image_names(path, names)
        if not arrays:
            raise UsageError(f"{path}", found="no array of three or four axes", expected="a cube")
        wanted = wanted_images(path, names, hints)
        blocks, attributes = read_blocks(probe), tree_attributes(tree)
        return tuple(
            _source(probe, blocks, array, hints=hints, facts={"dataset": name, "attributes": attributes})
            for name, array in zip(names, arrays, strict=True)
            if name in wanted
        )


def _names(arrays: list[AsdfArray]) -> list[str]:
    """Return a name for each array: its last key, or all of them where several share the last."""
    last = [array.keys[-1] for array in arrays]
    return [name if last.count(name) == 1 else "_".join(array.keys) for name, array in zip(last, arrays, strict=True)]


def _source(
    probe: Probe, blocks: list[Block], array: AsdfArray, *, hints: Hints, facts: dict[str, Any]
) -> StoredSource:
    subject = f"{probe.path}, array {'/'.join(array.keys)!r}"
    array.check(subject, len(blocks))
    block = blocks[array.source]
    if block.compression:
        raise UsageError(
            subject,
            found=f"a block compressed with {block.compression}",
            expected="plain blocks",
            remedy=f"write it again with asdf.open({probe.path.name!r}).write_to(NEW, all_array_compression=None)",
        )
    order = resolve_axes(subject, ndim=len(array.shape), given=hints.axes, declared=None)
    shape = array.shape
    if array.is_fortran:
        shape, order = shape[::-1], AxisOrder(order.axes[::-1])
    file = FlatFile(probe.path, block.start + array.offset, shape=shape, dtype=array.dtype, order=order)
    cube = RawCube(probe.path, shape=shape, order=order, dtype=array.dtype.newbyteorder("="), **facts)
    if array.offset + array.data_bytes > block.length:
        raise DataError(
            subject, found=f"a block of {block.length} bytes", expected=f"{array.offset + array.data_bytes}"
        )
    return StoredSource(cube, file)
