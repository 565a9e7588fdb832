"""Terminal: what commands print on it, from tables to progress bars, none of which data can turn into a command."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Never, Protocol

from rich.console import Console
from rich.text import Text
from tqdm import tqdm

from voxload.text import shown


class Screen(Console):
    """rich's console, for text that may come out of files.

    Markup and emoji codes in it stay as they are written, and characters that are not printable are shown as Python
    writes them. Line ends and tabs are the tables' own.

    Parameters
    ----------
    stderr
        Whether to print on standard error.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return text ready to be printed: every string of a table, a title or a line comes by here."""
        return super().render_str(shown(text, keep="\n\t"), **options)


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
