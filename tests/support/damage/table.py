"""Table: the faults and their errors as a Markdown document."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from tests.support.damage.faults import Row

_INTRODUCTION = """# Faults

A fault is stored data that differ from what their format or metadata promise. This page lists the error that each
fault raises. It does not list errors of usage.

Each line is an `x.h5`, `x.zarr` or `x.npy` of 8^3 voxels in chunks of 4^3 that was broken on purpose. Beside it is
the message of the `DataError` that opening or reading it raises. `python -m tests.support.damage --write` makes this
page, and a test compares it.

A message names the file, what was found, what was expected, and what to do. Where the fault is in a chunk, it also
names the chunk, by its place in the grid of chunks. Where several chunks are broken, the message names the first one,
whichever thread found one. Before anything is read or allocated, voxload compares sizes and offsets with the file's
size. It compares the decoded size of a chunk with what its bytes can hold.

`missing="fill"` gives the fill value for chunks that were never written, and changes nothing for damage. A Zarr chunk
without an object counts as never written: that is how Zarr stores chunks that hold nothing but the fill value.

Some chunks have no checksum of their own. These are uncompressed chunks, and those of scale-offset, n-bit, blosc,
lz4, lzf, bitshuffle, and zstd without its checksum. A bit that flips in their data gives wrong voxels and no error.
Zarr's `crc32c` codec, HDF5's `fletcher32` filter, gzip, or a catalogue with checksums detects it.
"""


def document(lines: Sequence[tuple[Row, str]]) -> str:
    """Return the document of rows with their messages, which are stripped of folders; one line for each fault.

    Formats of which the messages differ in nothing but numbers share a line.
    """
    parts = [_INTRODUCTION]
    for fault, group in groupby(sorted(lines, key=lambda line: line[0].fault.casefold()), lambda line: line[0].fault):
        parts.append(f"\n## {fault[0].upper()}{fault[1:]}\n\n| format | error |\n| --- | --- |")
        same: dict[str, tuple[list[str], str]] = {}
        for row, message in group:
            text = _short(message)
            same.setdefault(re.sub(r"0x[0-9a-f]+|\d+", "N", text), ([], text))[0].append(row.form.name)
        parts += [f"| {', '.join(names)} | `{text}` |" for names, text in same.values()]
    return "\n".join(parts).replace("\n\n\n", "\n\n") + "\n"


def _short(message: str) -> str:
    """Strip the folder off the file names of a message."""
    return re.sub(r"(?<!\S)/\S*?/(?=x\.(?:h5|zarr|npy))", "", message)
