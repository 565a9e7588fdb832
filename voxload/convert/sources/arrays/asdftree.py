"""The tree of an ASDF file: the arrays in it and the plain values beside them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from voxload.convert.sources.libraries import library
from voxload.errors import DataError, UsageError
from voxload.files.limits import DOCUMENT, MEMBERS
from voxload.files.regular import open_regular
from voxload.readers.faults import translated

_NDARRAY_TAG = "stsci.edu:asdf/core/ndarray-"
_ORDERS = ("big", "little")
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_TYPES = {name: name for name in (*_INTEGERS, "float16", "float32", "float64")} | {"bool8": "bool"}
_HEADERS = ("header", "meta")
"""Keys of the tree under which cosmologists and astronomers keep what describes the arrays."""
_LONGEST = 64
_END = re.compile(rb"\n\.\.\.\r?\n")
"""What stands behind the tree."""
_PIECE_BYTES = 2**16


@dataclass(frozen=True, slots=True)
class AsdfArray:
    """One array of three or four axes."""

    keys: tuple[str, ...]
    """Where it is in the tree."""
    node: Mapping[str, Any]
    """What the tree says of it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents, as numpy has them."""
        return tuple(self.node["shape"])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Stored type, with the stored byte order."""
        stored = np.dtype(_TYPES[self.node["datatype"]])
        return stored.newbyteorder(">" if self.node["byteorder"] == "big" else "<")

    @property
    def source(self) -> int:
        """Number of its block."""
        return int(self.node["source"])

    @property
    def offset(self) -> int:
        """Bytes of the block before it."""
        return int(self.node.get("offset", 0))

    @property
    def data_bytes(self) -> int:
        """Its length."""
        return prod(self.shape) * self.dtype.itemsize

    @property
    def is_fortran(self) -> bool:
        """Whether its first axis runs fastest."""
        return "strides" in self.node and tuple(self.node["strides"]) != self._strides(self.shape)

    def check(self, subject: str, blocks: int) -> None:
        """Refuse an array that is not all in one of the `blocks`, masked, or neither in C nor in Fortran order."""
        extents = self.node["shape"]
        if not all(type(extent) is int and extent > 0 for extent in extents):
            raise UsageError(subject, found=f"shape {extents}", expected="fixed extents", remedy="write it again")
        source = self.node.get("source")
        if type(source) is not int or "mask" in self.node:
            found = "a mask" if "mask" in self.node else f"voxels in {source!r}"
            raise UsageError(subject, found=found, expected="all voxels in this file", remedy="write it again whole")
        if not 0 <= source < blocks or self.node.get("byteorder") not in _ORDERS or self.offset < 0:
            raise DataError(
                subject,
                found=f"block {source}, byte order {self.node.get('byteorder')}",
                expected=f"one of {blocks} blocks, and big or little",
                remedy="the file is truncated or damaged: copy it again",
            )
        if self.is_fortran and tuple(self.node["strides"]) != self._strides(self.shape[::-1])[::-1]:
            raise UsageError(
                subject,
                found=f"strides {list(self.node['strides'])}",
                expected="voxels side by side",
                remedy="write a copy of the array",
            )

    def _strides(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(prod(shape[axis + 1 :]) * self.dtype.itemsize for axis in range(len(shape)))


def read_tree(path: Path) -> Mapping[str, Any]:
    """Return the tree of a file with its tags, but no array; raises DataError when it is damaged."""
    yaml, util = library("yaml", f"{path}"), library("asdf.util", f"{path}")
    try:
        with translated(f"{path}"):
            _check_length(path)
            tree = util.load_yaml(str(path), tagged=True)
    except yaml.YAMLError as error:
        raise DataError(f"{path}", found=str(error).splitlines()[0], expected="a tree in YAML") from error
    if not isinstance(tree, Mapping):
        raise DataError(f"{path}", found=f"a tree that is a {type(tree).__name__}", expected="a mapping")
    return tree


def _check_length(path: Path) -> None:
    """Refuse a tree that is too long to be parsed; raises DataError."""
    length, last = 0, b""
    with open_regular(path) as file:
        while piece := file.read(_PIECE_BYTES):
            if _END.search(last + piece):
                return
            length, last = length + len(piece), piece[-len(_END.pattern) :]
            DOCUMENT.check(f"{path}", length, "a tree")


def tree_arrays(tree: Mapping[str, Any]) -> list[AsdfArray]:
    """Return the arrays of numbers with three or four axes, in the tree's order."""
    return [
        AsdfArray(keys, node)
        for keys, node in _nodes(tree, (), frozenset(), itertools.count())
        if len(node.get("shape", ())) in (3, 4) and node.get("datatype") in _TYPES
    ]


def tree_attributes(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain values at the top of the tree and in its header."""
    found: dict[str, Any] = {}
    for part in (tree, *(tree[key] for key in _HEADERS if isinstance(tree.get(key), Mapping))):
        found |= {str(key): plain for key, value in part.items() if (plain := _plain(value)) is not None}
    return found


def _nodes(
    node: object, keys: tuple[str, ...], above: frozenset[int], number: Iterator[int]
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Yield the arrays below a node; a tree may hold a node below itself, or many times, through aliases."""
    MEMBERS.check("/".join(keys), next(number), "a tree")
    if id(node) in above:
        return
    if isinstance(node, Mapping):
        if _NDARRAY_TAG in getattr(node, "_tag", ""):
            yield keys, node
            return
        items = list(node.items())
    elif isinstance(node, list):
        items = list(enumerate(node))
    else:
        return
    for key, value in items:
        yield from _nodes(value, (*keys, str(key)), above | {id(node)}, number)


def _plain(value: object) -> Any:
    """Return text, a finite number or a short list of them as JSON has them; None for all else."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool | int | float) and np.isfinite(value):
        return value
    if isinstance(value, list) and len(value) <= _LONGEST:
        items = [_plain(item) for item in value]
        return items if None not in items else None
    return None
