"""Sizes in bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxload.errors import UsageError
from voxload.units import format_bytes, parse_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8GiB", 8 * 2**30),
        ("8GB", 8 * 10**9),
        ("512MiB", 2**29),
        ("1.5 KiB", 1536),
        (" 4096 ", 4096),
        ("7B", 7),
        ("3kB", 3000),
        ("2TB", 2 * 10**12),
        (12, 12),
        ("0", 0),
    ],
)
def test_sizes(text: str | int, size: int) -> None:
    """Powers of two and of ten keep their own names."""
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "8G", "8g", "GiB", "-1GiB", "8 GiB of memory", "1e9", "8gb", "nan", True, -5])
def test_nonsense_is_refused(text: str | int) -> None:
    """What is no size, or could be two, is refused with an example."""
    with pytest.raises(UsageError, match="write for example 512MiB"):
        parse_bytes(text)


@given(st.integers(min_value=0, max_value=2**60))
def test_formatted_size_is_close(size: int) -> None:
    """A formatted size reads back within its two decimals."""
    assert parse_bytes(format_bytes(size)) == pytest.approx(size, rel=0.006)


def test_format() -> None:
    """Whole sizes lose their decimals, and the unit is the largest that fits."""
    assert [format_bytes(size) for size in (0, 1023, 1024, 2**29, 3 * 2**29)] == [
        "0 B",
        "1023 B",
        "1 KiB",
        "512 MiB",
        "1.5 GiB",
    ]
