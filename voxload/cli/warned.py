"""Warnings: one line each on standard error, as errors are; where in voxload's code one was given helps no caller."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from voxload.cli.main import TRACEBACK
from voxload.text import shown


def show_warnings(arguments: Sequence[str]) -> None:
    """Print warnings of this process so from now on, unless the arguments ask for tracebacks."""
    if TRACEBACK not in arguments:
        warnings.formatwarning = _in_one_line


def _in_one_line(
    message: Warning | str,
    category: type[Warning],  # noqa: ARG001 - the signature of warnings.formatwarning
    filename: str,  # noqa: ARG001
    lineno: int,  # noqa: ARG001
    line: str | None = None,  # noqa: ARG001
) -> str:
    return f"voxload: warning: {shown(' '.join(str(message).split()))}\n"
