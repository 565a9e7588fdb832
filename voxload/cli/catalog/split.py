"""``voxload catalog split``: training, validation and test."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from voxload.catalog import Grouping, Rows, catalog_path, universes_of, write_rows
from voxload.catalog.split import split
from voxload.cli.catalog.tables import parts_table, tell_outside
from voxload.cli.options import AllowOutside
from voxload.cli.terminal import Screen
from voxload.errors import UsageError

EPILOG = "Example: voxload catalog split universes/ --train 0.8 --val 0.1 --test 0.1 --seed 7"
"""Shown at the end of the command's help."""

_USUAL = {"train": 0.8, "val": 0.1, "test": 0.1}
_HELP = "Fraction or number of samples; left out or 0: no such part."


def split_catalog(
    catalog: Annotated[Path, typer.Argument(help="A catalogue, or the folder that holds it.", show_default=False)],
    *,
    train: Annotated[float | None, typer.Option(help=_HELP, min=0)] = None,
    val: Annotated[float | None, typer.Option(help=_HELP, min=0)] = None,
    test: Annotated[float | None, typer.Option(help=_HELP, min=0)] = None,
    seed: Annotated[int, typer.Option(help="Another seed gives another split.")] = 0,
    by: Annotated[Grouping, typer.Option(help="What is never parted.")] = Grouping.UNIVERSE,
    out: Annotated[Path | None, typer.Option(help="Folder for the parts, if not the catalogue's own.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace parts that are there.")] = False,
    allow_outside: AllowOutside = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what went where as JSON.")] = False,
) -> None:
    """Write train.parquet, val.parquet and test.parquet: 0.8, 0.1 and 0.1 of the samples unless told otherwise.

    Samples of one universe stay together. The same catalogue and seed give the same parts; samples that are added
    later move the cuts, so that some universes change sides.
    """
    given = {"train": train, "val": val, "test": test}
    shares = {name: share or 0.0 for name, share in given.items()}
    place = catalog_path(catalog)
    rows = Rows.read(place, allow_outside=allow_outside)
    universes = universes_of(rows)
    parts = split(rows, shares if any(shares.values()) else _USUAL, seed=seed, by=by)
    folder = place.parent if out is None else out
    _check_names(place, folder, list(parts))
    paths = {name: folder / f"{name}.parquet" for name in parts}
    write_rows({paths[name]: part for name, part in parts.items()}, overwrite=overwrite)
    figures = [_figures(name, paths[name], part, universes) for name, part in parts.items()]
    torn = _torn(parts, universes)
    if as_json:
        print(json.dumps({"seed": seed, "by": by.value, "parts": figures, "universes_torn": torn}))
        return
    Screen().print(parts_table(figures))
    tell_outside(list(paths.values()))
    if torn:
        print(f"{torn} universes have samples in several parts; --by universe keeps them together")


def _check_names(place: Path, folder: Path, written: list[str]) -> None:
    """Refuse to write over the catalogue itself, or beside a part of another split that shares samples with these."""
    for name in _USUAL:
        path = folder / f"{name}.parquet"
        if path.resolve() == place.resolve():
            raise UsageError(str(place), found="the name of a part", remedy="give --out another folder")
        if name not in written and path.exists():
            raise UsageError(
                str(path),
                found="a part of another split",
                expected=f"only {', '.join(written)}",
                remedy="move it away, or give --out another folder",
            )


def _torn(parts: Mapping[str, Rows], universes: Mapping[str, str]) -> int:
    """Return how many universes have samples in several parts."""
    sides = Counter(universe for part in parts.values() for universe in {universes[name] for name in part.samples})
    return sum(1 for count in sides.values() if count > 1)


def _figures(name: str, path: Path, part: Rows, universes: Mapping[str, str]) -> dict[str, Any]:
    samples = set(part.samples)
    return {
        "part": name,
        "catalog": str(path),
        "samples": len(samples),
        "share": len(samples) / len(universes),
        "universes": len({universes[sample] for sample in samples}),
        "volumes": len(part),
        "stored_bytes": part.stored_bytes,
    }
