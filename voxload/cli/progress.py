"""Progress bars on standard error; where that is no terminal they show nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Never, Protocol

from tqdm import tqdm

from voxload.text import shown


class Progress(Protocol):
    """How far a command is."""

    @property
    def sample(self) -> str:
        """The sample at hand."""
        ...

    @property
    def bytes_done(self) -> int:
        """Bytes done so far."""
        ...

    @property
    def bytes_total(self) -> int:
        """Bytes to do."""
        ...


@contextmanager
def byte_bar(label: str = "") -> Iterator[Callable[[Progress], None]]:
    """Yield what shows progress in bytes, with rate and remaining time."""
    with _bar(unit="B", unit_scale=True, unit_divisor=1024) as bar:

        def show(progress: Progress) -> None:
            bar.total = progress.bytes_total
            bar.set_description(f"{label}{shown(progress.sample)}", refresh=False)
            bar.update(progress.bytes_done - bar.n)

        yield show


@contextmanager
def count_bar(label: str, *, total: int, unit: str) -> Iterator[tqdm[Never]]:
    """Yield a bar of `total` steps."""
    with _bar(desc=label, total=total, unit=unit) as bar:
        yield bar


def _bar(
    *, desc: str = "", total: int | None = None, unit: str, unit_scale: bool = False, unit_divisor: int = 1000
) -> tqdm[Never]:
    return tqdm(
        desc=desc,
        total=total,
        unit=unit,
        unit_scale=unit_scale,
        unit_divisor=unit_divisor,
        disable=not sys.stderr.isatty(),
        file=sys.stderr,
    )
