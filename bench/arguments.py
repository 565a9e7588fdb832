"""What the benchmarks' command lines have in common: types of arguments, and the folder of the samples."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def names(*known: str) -> Callable[[str], tuple[str, ...]]:
    """Return a parser of comma-separated names out of `known`."""

    def parse(text: str) -> tuple[str, ...]:
        found = tuple(text.split(","))
        strange = [name for name in found if name not in known]
        if strange:
            raise argparse.ArgumentTypeError(f"{', '.join(strange)}: not one of {', '.join(known)}")
        return found

    return parse


def number(text: str) -> int:
    """Parse a number of one or more."""
    found = int(text)
    if found < 1:
        raise argparse.ArgumentTypeError("a number of 1 or more")
    return found


@contextmanager
def folder(chosen: Path | None) -> Iterator[Path]:
    """Yield the folder that a user chose, made if it is not there; or a temporary one."""
    if chosen is not None:
        chosen.mkdir(parents=True, exist_ok=True)
        yield chosen
        return
    with tempfile.TemporaryDirectory(prefix="voxload-bench-") as temporary:
        yield Path(temporary)
