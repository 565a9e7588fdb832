"""ASDF: arrays of three or four axes in the tree of an Advanced Scientific Data Format file.

The tree is read by the asdf library; the places of the blocks come from their headers, because the library gives none,
and voxels are read by position. Checksums of blocks cover whole blocks and are not verified. Source: ASDF Standard,
file layout, asdf-standard.readthedocs.io.
"""

from __future__ import annotations

from typing import Any

from voxload.convert.sources.asdfblocks import Block, read_blocks
from voxload.convert.sources.asdftree import AsdfArray, read_tree, tree_arrays, tree_attributes
from voxload.convert.sources.flat import FlatFile
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.imagenames import check_names, wanted_names
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import RawCube, Source
from voxload.convert.sources.stored import StoredSource
from voxload.errors import DataError, UsageError
from voxload.readers.axes import AxisOrder, resolve_axes

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
        check_names(path, names)
        if not arrays:
            raise UsageError(f"{path}", found="no array of three or four axes", expected="a cube")
        wanted = wanted_names(path, names, hints)
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
