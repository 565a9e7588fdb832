"""Sizes in bytes as people write them: ``"8GiB"`` in, ``"8 GiB"`` out.

Rule: powers of two and powers of ten are never mixed. ``GiB`` is 2**30 bytes, ``GB`` is 10**9, and a bare
``G`` is refused because it could mean either.
"""

from __future__ import annotations

import re
from decimal import Decimal

from voxload.errors import UsageError

_BINARY = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}
_DECIMAL = {"kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15}
_FACTORS = {"": 1, "B": 1, **_BINARY, **_DECIMAL}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")


def parse_bytes(value: str | int) -> int:
    """Return a size in bytes from text such as ``"512MiB"``, ``"1.5 GB"`` or ``"4096"``, or from a number.

    A fraction of a byte is dropped.

    Raises
    ------
    UsageError
        When it is no size, is negative, or has a unit that could mean two things.

    >>> parse_bytes("8GiB"), parse_bytes("8GB")
    (8589934592, 8000000000)
    """
    match = _SIZE.fullmatch(str(value)) if not isinstance(value, bool) else None
    if match is None or match[2] not in _FACTORS:
        raise UsageError(
            f"size {value!r}",
            found="not a number of bytes",
            expected="a number with B, KiB, MiB, GiB, TiB (powers of two) or kB, MB, GB, TB (powers of ten)",
            remedy="write for example 512MiB",
        )
    return int(Decimal(match[1]) * _FACTORS[match[2]])


def format_bytes(size: int) -> str:
    """Return a size in bytes as text in powers of two, with up to two decimals.

    >>> format_bytes(1536), format_bytes(2**30), format_bytes(7)
    ('1.5 KiB', '1 GiB', '7 B')
    """
    name, factor = "B", 1
    for unit, step in _BINARY.items():
        if abs(size) >= step:
            name, factor = unit, step
    return f"{size / factor:.2f}".rstrip("0").rstrip(".") + f" {name}"
