"""Names of the images in a file, and which of them are wanted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from voxload.convert.sources.hints import Hints
from voxload.errors import DataError, NotFoundError

IMAGE = "image"
"""Name of a volume that nothing in its file or its place names."""


def check_names(path: Path, names: Sequence[str]) -> None:
    """Refuse volumes that would hide each other."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(f"{path}", found=f"two volumes {twice[0]!r}", expected="each name once")


def wanted_names(path: Path, names: Sequence[str], hints: Hints) -> tuple[str, ...]:
    """Return the names that the caller wants, in the file's order; raises NotFoundError on one that is not there."""
    absent = [name for name in hints.datasets if name not in names]
    if absent:
        raise NotFoundError(
            f"{path}",
            found=f"no volume {absent[0]!r}",
            expected=f"some of {', '.join(names)}",
            remedy="name one of them with --dataset",
        )
    return tuple(name for name in names if not hints.datasets or name in hints.datasets)
