"""Headerless binaries: four options of commands that take raw files become what is known of such a file."""

from __future__ import annotations

from voxload.cli.options import parse_extents
from voxload.convert.sources.hints import Headerless, MemoryOrder
from voxload.errors import UsageError


def headerless(shape: str, dtype: str, *, order: MemoryOrder | None, header_bytes: int) -> Headerless | None:
    """Return what four options say of a headerless binary, None where none is given.

    Raises UsageError when shape or type is missing.
    """
    if not shape and not dtype and order is None and not header_bytes:
        return None
    if not shape or not dtype:
        raise UsageError(
            "headerless binary",
            found=f"no {'--dtype' if shape else '--shape'}",
            expected="--shape and --dtype, and --order for Fortran order",
            remedy="write for example --shape 512,512,512 --dtype '<f4' --order F",
        )
    return Headerless(parse_extents("--shape", shape), dtype, order or MemoryOrder.C, header_bytes)
