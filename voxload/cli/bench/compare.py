"""``voxload bench compare``: what changed from one result to another, beyond noise or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from voxload.benchmark.measure.document import Document
from voxload.benchmark.results.compare import compare_results
from voxload.benchmark.results.tables import comparison_tables
from voxload.cli.terminal import Screen

EPILOG = "Example: voxload bench compare before.json after.json"
"""Shown at the end of the command's help."""


def compare(
    a: Annotated[Path, typer.Argument(help="Result that is compared with.", show_default=False)],
    b: Annotated[Path, typer.Argument(help="Result that is compared.", show_default=False)],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print figures as JSON.")] = False,
) -> None:
    """Say of each figure whether B is better or worse than A, or within noise, and what else differs."""
    comparison = compare_results(Document.read(a), Document.read(b))
    if as_json:
        print(json.dumps(comparison.as_dict(), allow_nan=False))
    else:
        Screen().print(comparison_tables(comparison))
