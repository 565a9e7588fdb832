"""Tables of raw cubes: what a file holds before it is converted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from voxload.cli.info_source import RawListing
from voxload.convert.plan.finding import FoundCube
from voxload.text import shown
from voxload.units import format_bytes

LISTED = 30
"""Cubes that are shown; the rest are counted."""
_LONGEST = 200
"""Characters of a cube's targets, or of its attributes, in the table of many."""


def listing_tables(listing: RawListing) -> RenderableType:
    """Return what a listing shows: sums, and one cube in full or the first of many."""
    sums = Table(show_header=False)
    sums.add_row("source", listing.format or "folder")
    samples = len({found.sample for found in listing.cubes})
    sums.add_row("cubes", f"{len(listing.cubes)}, of {samples} samples")
    if listing.ignored:
        sums.add_row("no raw cubes", f"{len(listing.ignored)} files, such as {escape(listing.ignored[0])}")
    sums.add_row("decoded", format_bytes(sum(map(_bytes, listing.cubes))))
    if len(listing.cubes) == 1:
        _add_cube(sums, listing.cubes[0])
        return sums
    common = _common(listing.cubes)
    if common:
        sums.add_row("attributes of all", escape(_values(common)))
    return Group(sums, _cubes(listing, common))


def names_table(kind: str, names: Sequence[str]) -> RenderableType:
    """Return a table of volumes of which only the names are known."""
    table = Table(show_header=False)
    table.add_row("what", f"{kind}, {len(names)} volumes; --dataset shows one")
    table.add_row("volumes", escape(", ".join(map(shown, names[:LISTED]))))
    if len(names) > LISTED:
        table.caption, table.caption_justify = f"and {len(names) - LISTED} more", "left"
    return table


def _add_cube(table: Table, found: FoundCube) -> None:
    cube = found.cube
    rows = {
        "sample": found.sample + (f" (part {cube.part})" if cube.part else ""),
        "dataset": cube.dataset,
        "shape (C, D, H, W)": _extents(cube.volume_shape),
        "axes as stored": cube.order.axes,
        "dtype": cube.dtype.str,
        "read": "in the order of the bytes only" if cube.is_sequential else "in any order",
        "targets": _values(cube.targets) or "none",
        "attributes": _values(cube.attributes) or "none",
    }
    for name, value in rows.items():
        table.add_row(name, escape(value))


def _cubes(listing: RawListing, common: Mapping[str, Any]) -> Table:
    """Return the first cubes of many; `common` are attributes that all have, which are shown once."""
    shown = listing.cubes[:LISTED]
    columns = {
        "sample": [found.sample for found in shown],
        "dataset": [found.cube.dataset for found in shown],
        "shape": ["x".join(map(str, found.cube.volume_shape)) for found in shown],
        "axes": [found.cube.order.axes for found in shown],
        "dtype": [found.cube.dtype.str for found in shown],
        "targets": [_short(found.cube.targets) for found in shown],
        "attributes": [_short(_without(found.cube.attributes, common)) for found in shown],
    }
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title="Cubes (C, D, H, W)", title_justify="left")
    kept = {name: cells for name, cells in columns.items() if any(cells)}
    for name in kept:
        table.add_column(name, overflow="fold", min_width=4)
    for cells in zip(*kept.values(), strict=True):
        table.add_row(*map(escape, cells))
    more = len(listing.cubes) - LISTED
    if more > 0:
        table.caption = f"and {more} more"
        table.caption_justify = "left"
    return table


def _common(cubes: Sequence[FoundCube]) -> dict[str, Any]:
    """Return the attributes that are equal in all cubes."""
    first = cubes[0].cube.attributes
    return {
        name: value
        for name, value in first.items()
        if all(name in found.cube.attributes and found.cube.attributes[name] == value for found in cubes)
    }


def _without(values: Mapping[str, Any], common: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in common}


def _bytes(found: FoundCube) -> int:
    return prod(found.cube.shape) * found.cube.dtype.itemsize


def _extents(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _values(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_plain(value)}" for name, value in values.items())


def _short(values: Mapping[str, Any]) -> str:
    text = _values(values)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _plain(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
