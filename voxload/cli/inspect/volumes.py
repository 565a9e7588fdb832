"""Stored volumes of one file or hierarchy: what a data set makes of each, where a conversion does not take them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from voxload.cli.inspect.items import Items
from voxload.errors import UsageError
from voxload.readers import Location, Missing, open_reader


@dataclass(frozen=True, slots=True)
class StoredVolume:
    """One of several volumes; no voxel of it was read."""

    name: str
    """Its name in the file."""
    items: Items | None = None
    """What a data set makes of it; None where it has to be told more."""
    refusal: str = ""
    """What it has to be told."""

    def figures(self) -> dict[str, Any]:
        """Return plain values."""
        if self.items is None:
            return {"dataset": self.name, "refusal": self.refusal}
        stored = self.items.stored
        own = {"shape": list(self.items.shape), "axes": stored.axes, "dtype": stored.dtype.str}
        return {"dataset": self.name, **own, **self.items.figures()}


def look(names: Sequence[str], location: Callable[[str], Location], decode: str | None) -> tuple[StoredVolume, ...]:
    """Open each of some volumes, whose places `location` gives.

    Raises UsageError where the caller has to say more of all of them, and what opening a damaged one raises.
    """
    found = tuple(_look(name, location(name), decode) for name in names)
    if all(one.items is None for one in found):
        raise UsageError(found[0].refusal)
    return found


def _look(name: str, location: Location, decode: str | None) -> StoredVolume:
    try:
        with closing(open_reader(location, missing=Missing.FILL)) as reader:
            return StoredVolume(name, Items.of(reader.describe(), location, decode))
    except UsageError as error:  # what has to be said of one is no reason to hide the others
        return StoredVolume(name, refusal=str(error))


def volumes_table(format_name: str, volumes: Sequence[StoredVolume], count: int) -> Table:
    """Return a table of the first of `count` volumes."""
    table = Table(
        box=SIMPLE_HEAD,
        pad_edge=False,
        title=f"{format_name}, {count} volumes; --dataset shows one",
        title_justify="left",
    )
    for column in ("dataset", "shape", "axes", "dtype", "items", "dtype of items"):
        table.add_column(column, overflow="fold", min_width=4)
    for one in volumes:
        table.add_row(one.name, *_cells(one))
    more = [f"{one.refusal}" for one in volumes if one.items is None]
    more += [f"and {count - len(volumes)} more"] if count > len(volumes) else []
    if more:
        table.caption, table.caption_justify = "\n".join(more), "left"
    return table


def _cells(volume: StoredVolume) -> tuple[str, ...]:
    items = volume.items
    if items is None:
        return ("see below", "", "", "", "")
    shape = "x".join(map(str, items.shape))
    return shape, items.stored.axes, items.stored.dtype.str, f"{items.count}", items.dtype.str
