"""aligned: rows of cells as lines of text."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(rows: Sequence[tuple[str, ...]]) -> str:
    """Return `rows` as lines of aligned columns.

    >>> print(aligned([("layer", "ranks"), ("conv1", "4")]))
    layer  ranks
    conv1  4
    """
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
