"""CRC-32C of stored blocks, summed while they are copied; Castagnoli's polynomial, RFC 3720, appendix B.4.

The package crc32c sums without the interpreter's lock, which other bindings hold all the while: threads that check
blocks would wait for each other.
"""

from __future__ import annotations

import crc32c
import numpy as np

from voxload.readers.scratch import Bytes

PIECE = 2**20
"""Bytes that are copied before they are summed: they are still in the core's cache then."""


def checksum(data: Bytes | bytes, seed: int = 0) -> int:
    """Return the CRC-32C of what was summed to `seed`, continued by `data`."""
    return crc32c.crc32c(data if isinstance(data, bytes) else data.data, seed)


def copy_and_sum(source: Bytes, target: Bytes, seed: int = 0) -> int:
    """Copy bytes and return the checksum of what arrived, continued from `seed`.

    The sum is of the target: whatever happens to the source meanwhile, the sum is of the bytes that the caller has.
    """
    for start in range(0, len(source), PIECE):
        part = target[start : start + PIECE]
        np.copyto(part, source[start : start + PIECE])
        seed = checksum(part, seed)
    return seed
