"""header_lines: a header of text lines in front of voxels, read within bounds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from voxload.errors import DataError
from voxload.readers.faults import translated
from voxload.regular import open_regular

_MOST_BYTES = 2**20
"""No header is longer; a damaged one must not make us read the voxels as text."""


def header_lines(path: Path, is_last: Callable[[bytes], bool]) -> tuple[list[bytes], int]:
    """Return the lines up to the last one of a header, or to the end of the file, and their length in bytes.

    Raises DataError when there is no last line within 1 MiB.
    """
    lines: list[bytes] = []
    length = 0
    with translated(f"{path}"), open_regular(path) as file:
        while line := file.readline(_MOST_BYTES):
            length += len(line)
            if length >= _MOST_BYTES:
                raise DataError(
                    f"{path}",
                    found="a header without an end",
                    expected="one shorter than 1 MiB",
                    remedy="copy it again",
                )
            lines.append(line)
            if is_last(line):
                break
    return lines, length
