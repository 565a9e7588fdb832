"""Tables of ``voxload catalog`` for the terminal, and values for JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from rich.box import SIMPLE_HEAD
from rich.table import Table

from voxload.catalog import FieldFigures, Rows
from voxload.catalog.query.terms import Column
from voxload.catalog.rows import names_outside
from voxload.catalog.statistics import Summary
from voxload.text import shown as visible
from voxload.units import format_bytes

_TEXT = frozenset({"sample", "dataset", "path", "dtype", "axes", "checksums", "universe"})


def sample_table(rows: Rows, shown: Mapping[str, Column], limit: int) -> Table:
    """Return the first rows with the columns to show."""
    table = _table("")
    for name in shown:
        table.add_column(
            "stored" if name == "stored_bytes" else visible(name),
            justify="left" if name in _TEXT else "right",
            overflow="fold",  # a cut id names nothing
        )
    values = {name: column.of(rows.table)[:limit].to_pylist() for name, column in shown.items()}
    for line in zip(*values.values(), strict=True):
        table.add_row(*(_cell(name, value) for name, value in zip(shown, line, strict=True)))
    if limit < len(rows):
        table.caption = f"and {len(rows) - limit} more rows; --limit shows more"
        table.caption_justify = "left"
    return table


def totals(rows: Rows) -> str:
    """Say how much there is of the rows."""
    return f"{len(set(rows.samples))} samples, {len(rows)} volumes, {format_bytes(rows.stored_bytes)} stored"


def figures_table(figures: Mapping[str, FieldFigures]) -> Table:
    """Return the figures of each field and its channels."""
    table = _table("Voxels of each field, over all rows")
    for name in ("field", "channel", "finite", "mean", "std", "min", "max", "NaN", "inf"):
        table.add_column(name, justify="left" if name == "field" else "right", overflow="fold")
    for name, field in figures.items():
        parts = dict(enumerate(field.channels)) if len(field.channels) != 1 else {}
        table.add_row(visible(name) or "(unnamed)", "all", *_figures(field.whole), end_section=not parts)
        for number, channel in parts.items():
            table.add_row("", str(number), *_figures(channel), end_section=number == len(parts) - 1)
    unknown = sum(field.unknown for field in figures.values())
    if unknown:
        table.caption = f"without {unknown} volumes that have no statistics in the catalogue"
        table.caption_justify = "left"
    return table


def failures_table(failures: Mapping[str, str]) -> Table:
    """Return the samples that could not be made, and what is said of them."""
    table = _table(f"{len(failures)} samples that could not be made")
    for name in ("sample", ""):
        table.add_column(name, overflow="fold")
    for sample, words in failures.items():
        table.add_row(visible(sample), visible(words))
    return table


def parts_table(parts: list[dict[str, Any]]) -> Table:
    """Return what went into each part of a split."""
    table = _table("")
    for name in ("part", "samples", "share", "universes", "volumes", "stored", "catalogue"):
        table.add_column(name, justify="left" if name in ("part", "catalogue") else "right", overflow="fold")
    for part in parts:
        table.add_row(
            part["part"],
            str(part["samples"]),
            f"{part['share']:.2%}",
            str(part["universes"]),
            str(part["volumes"]),
            format_bytes(part["stored_bytes"]),
            part["catalog"],
        )
    return table


def plain(value: Any) -> Any:
    """Return a value as JSON knows it; what is not finite is null."""
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _figures(summary: Summary | None) -> list[str]:
    if summary is None:
        return ["-"] * 7
    values = (summary.mean, summary.std, summary.min, summary.max)
    shown = ["-" if value is None else f"{value:.5g}" for value in values]
    return [str(summary.count), *shown, str(summary.nan_count), str(summary.inf_count)]


def _side(name: str) -> Literal["left", "right"]:
    return "left" if name in _TEXT else "right"


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name == "stored_bytes":
        return format_bytes(value)
    if isinstance(value, list):
        return visible(",".join(f"{part:.6g}" if isinstance(part, float) else str(part) for part in value))
    return f"{value:.6g}" if isinstance(value, float) else visible(str(value))


def _table(title: str) -> Table:
    return Table(title=title or None, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)


def print_written(place: Path, rows: Rows, *, as_json: bool) -> None:
    """Say what was written where."""
    if as_json:
        counts = {"samples": len(set(rows.samples)), "volumes": len(rows), "stored_bytes": rows.stored_bytes}
        print(json.dumps({"catalog": str(place), **counts, "targets": rows.targets}))
    else:
        print(f"{visible(str(place))}: {totals(rows)}")
        tell_outside([place])


def tell_outside(places: list[Path]) -> None:
    """Say of catalogues that name files outside of their folder how they are read."""
    outside = [place for place in places if names_outside(Rows.read(place, allow_outside=True))]
    if outside:
        print("files lie outside of its folder: read it with --allow-outside")
