"""Screen: the console on which commands print; nothing that data are called by reaches the terminal as a command."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

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
