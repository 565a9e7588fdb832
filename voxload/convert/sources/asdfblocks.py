"""read_blocks: where the binary blocks of an ASDF file are. Source: ASDF Standard, file layout, section on blocks."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import BinaryIO

from voxload.convert.sources.probe import Probe
from voxload.errors import DataError
from voxload.readers.faults import translated
from voxload.regular import open_regular

_TREE_END = re.compile(rb"\r?\n\.\.\.\r?\n")
_MAGIC = b"\xd3BLK"
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
            if not prefix.startswith(_MAGIC):
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
        place = head.find(_MAGIC, end.end()) if end else -1
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
