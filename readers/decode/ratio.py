"""Compression ratio: how much a compressed chunk can hold at most, asked before memory is taken for it."""

from __future__ import annotations

_MOST = 2**15
"""Bytes that one stored byte can stand for.

zstd's runs hold the most of all codecs here: a block of four bytes stands for 2^17 (RFC 8878, section 3.1.1.2); deflate
reaches 1032 and lz4 255. Runs of blosc2 have no such bound, but their frames say how long they are.
"""
_EXPANSION = 8
_SLACK = 2**16
"""No compressor makes data longer than by an eighth and this."""


def check_ratio(name: str, stored: int, size: int) -> None:
    """Refuse to decode `stored` bytes into `size`, when no stream of so few bytes can be so long.

    A chunk's decoded size comes from metadata, which may be damaged: memory is only taken for what the data can be.

    Raises
    ------
    ValueError
        When the size is out of reach.
    """
    if size > _MOST * stored:
        raise ValueError(f"{stored} bytes of {name}, which cannot hold {size}")


def longest_stored(decoded: int, *, is_plain: bool) -> int:
    """Return the most bytes that a chunk of `decoded` ones can take in storage: a longer object is no chunk."""
    return decoded if is_plain else decoded + decoded // _EXPANSION + _SLACK


def most_decoded(stored: int, most: int) -> int:
    """Return how many bytes `stored` ones can decode to, where `most` is all that is known."""
    return min(most, _MOST * stored)
