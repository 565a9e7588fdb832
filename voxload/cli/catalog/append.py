"""``voxload catalog append``: rows for a catalogue that others read and append to meanwhile."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from voxload.catalog import Rows, catalog_path, note_failures, read_failures
from voxload.catalog.append import PATIENCE, append
from voxload.cli.options import AllowOutside
from voxload.errors import UsageError
from voxload.text import shown as visible

EPILOG = "Example: voxload catalog append universes/ finished-17/ --failed 'u018=ran out of memory'"
"""Shown at the end of the command's help."""


def append_catalogs(
    catalog: Annotated[Path, typer.Argument(help="The catalogue that grows, or its folder.", show_default=False)],
    catalogs: Annotated[
        list[Path] | None, typer.Argument(help="Catalogues of what is added, or their folders.", show_default=False)
    ] = None,
    *,
    failed: Annotated[
        list[str] | None,
        typer.Option("--failed", help="SAMPLE=WORDS of a sample that could not be made.", show_default=False),
    ] = None,
    patience: Annotated[float, typer.Option(help="Seconds to wait for other writers.", min=0)] = PATIENCE,
    allow_outside: AllowOutside = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")] = False,
) -> None:
    """Add rows to a catalogue, which readers see whole, as it was before or as it is then; nothing else is copied.

    Any number of processes may append at once, and the same rows twice: those change nothing. Samples that could not be
    made are noted beside it with --failed, and forgotten when they are appended.
    """
    if not catalogs and not failed:
        raise UsageError("append", found="nothing to add", expected="catalogues, or --failed SAMPLE=WORDS")
    place = catalog_path(catalog)
    failures = dict(map(_failure, failed or ()))
    done = None
    if catalogs:
        added = [Rows.read(path, allow_outside=allow_outside) for path in catalogs]
        done = append(place, added, patience=patience)
    told = note_failures(place, failures, patience=patience) if failures else read_failures(place)
    if as_json:
        print(json.dumps({"catalog": str(place), **({} if done is None else dataclasses.asdict(done)), "failed": told}))
        return
    if done is not None:
        print(f"{visible(str(place))}: generation {done.generation}, {done.added} rows more, {done.rows} rows")
    if told:
        print(f"{len(told)} samples could not be made: voxload catalog list --failed shows them")


def _failure(text: str) -> tuple[str, str]:
    sample, equals, words = text.partition("=")
    if not sample or not equals:
        raise UsageError("--failed", found=repr(text), expected="SAMPLE=WORDS")
    return sample, words
