"""Part names: which of the samples of a file a cube belongs to."""

from __future__ import annotations

from math import prod

_DIGITS = 4
"""Digits of a number at least, so that parts of files of different lengths sort alike."""


def part_name(index: tuple[int, ...], counts: tuple[int, ...]) -> str:
    """Return the name of one of ``prod(counts)`` samples, padded with zeros; empty where there is only one.

    >>> part_name((7,), (128,)), part_name((3, 12), (8, 101)), part_name((0,), (1,))
    ('0007', '0003_0012', '')
    """
    if prod(counts) == 1:
        return ""
    widths = [max(_DIGITS, len(str(count - 1))) for count in counts]
    return "_".join(f"{number:0{width}d}" for number, width in zip(index, widths, strict=True))
