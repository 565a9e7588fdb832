"""RawListing: the cubes of a raw file or folder, as a conversion would find them, in figures and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from voxload.cli.inspect.planes import Cube, central_planes, draw_planes, millimetres
from voxload.convert.gridding import open_cubes
from voxload.convert.plan.finding import FoundCube, find_cubes, ignored_rows
from voxload.convert.sources.documents import is_beside
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.registry import find_format
from voxload.errors import NotFoundError
from voxload.text import shown
from voxload.units import format_bytes

_ARRAYS = ("HDF5", "Zarr")
"""Formats whose arrays have axes by name."""
_LISTED = 10
"""Names that a message lists at most."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which cubes are wanted; empty for any."""

    sample: str = ""
    """Sample id, as a conversion gives it."""
    dataset: str = ""
    """Name of the volume."""
    part: str = ""
    """Which of several samples in a file."""

    def has(self, found: FoundCube) -> bool:
        """Tell whether a cube is wanted."""
        cube = found.cube
        datasets = {self.dataset.strip("/"), self.dataset.rsplit("/", 1)[-1], self.dataset.replace("/", "_")}
        return (
            self.sample in ("", found.sample)
            and self.part in ("", cube.part)
            and (not self.dataset or cube.dataset in datasets)
        )


@dataclass(frozen=True, slots=True)
class RawListing:
    """What a raw file or a folder of them holds; no voxel was read."""

    path: str
    """The file or folder."""
    format: str
    """Name of the file's format; empty of a folder, whose files may be of several."""
    cubes: tuple[FoundCube, ...]
    """The cubes, at least one, in the order of their samples."""
    ignored: tuple[str, ...]
    """Files that are no raw cubes."""

    @classmethod
    def look(cls, path: str, hints: Hints, choice: Choice) -> RawListing:
        """List the cubes that are chosen.

        Raises
        ------
        NotFoundError
            When there is no such path, no raw cube, or none that is chosen.
        UsageError
            When the format cannot be told, or the file does not say what only the caller can.
        DataError
            When a file is damaged.
        """
        found, ignored = find_cubes(
            Path(path),
            Path(path),
            partial(open_cubes, hints=hints),
            left_out=partial(is_beside, hints=hints),
            allow_outside=hints.allow_outside,
        )
        chosen = [one for one in found if choice.has(one)]
        if not chosen:
            raise NotFoundError(
                path, found=f"no cube of {_named(choice)}", expected=f"one of {_listed(found)}", remedy="name one"
            )
        return cls(path, _format(Path(path), hints), tuple(chosen), tuple(ignored))

    @property
    def is_one_volume(self) -> bool:
        """Whether it is one file of one cube."""
        return len(self.cubes) == 1 and bool(self.format) and not self.cubes[0].cube.part

    @property
    def is_series(self) -> bool:
        """Whether it is one file of which each cube is a sample or a time step, by the axes of an array."""
        return self.format in _ARRAYS and all(found.cube.part for found in self.cubes)

    @property
    def axes(self) -> str:
        """The axes of one volume, as a conversion takes them; empty of several."""
        return self.cubes[0].cube.order.axes if self.is_one_volume else ""

    def figures(self) -> dict[str, Any]:
        """Return all cubes as plain values."""
        return {
            "path": self.path,
            "source": self.format,
            "samples": len({found.sample for found in self.cubes}),
            "cubes": [_figures(found) for found in self.cubes],
            "ignored": list(self.ignored),
        }

    def plot(self, path: Path) -> None:
        """Draw the three central planes of the first cube."""
        found = self.cubes[0]
        cube = Cube.of_source(found.cube)
        with found.source.open() as read_into:
            planes = central_planes(cube, read_into)
        draw_planes(planes, path, cube=cube, name=f"{found.cube.path.name}, {found.sample}:{found.cube.dataset}")


def _figures(found: FoundCube) -> dict[str, Any]:
    cube = found.cube
    return {
        "sample": found.sample,
        "part": cube.part,
        "dataset": cube.dataset,
        "path": str(cube.path),
        "shape": list(cube.volume_shape),
        "axes": cube.order.axes,
        "dtype": cube.dtype.str,
        "decoded_bytes": prod(cube.shape) * cube.dtype.itemsize,
        "is_sequential": cube.is_sequential,
        "spacing": cube.spacing and list(cube.spacing),
        "affine": cube.patient_affine and list(cube.patient_affine),
        "targets": dict(cube.targets),
        "attributes": dict(cube.attributes),
    }


def _format(path: Path, hints: Hints) -> str:
    if hints.headerless is not None:
        return "headerless binary"
    known = find_format(Probe(path), hints.kind) if path.is_file() or path.suffix == ".zarr" else None
    return known.name if known is not None else ""


def _named(choice: Choice) -> str:
    named = {"sample": choice.sample, "dataset": choice.dataset, "part": choice.part}
    return ", ".join(f"{name} {value!r}" for name, value in named.items() if value)


def _listed(found: Sequence[FoundCube]) -> str:
    names = [f"{one.sample}:{one.cube.dataset}" for one in found]
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{', '.join(names[:_LISTED])}{more}"


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
    for what, said in ignored_rows(listing.ignored).items():
        sums.add_row(what, escape(said))
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
        **({"spacing (D, H, W)": millimetres(cube.spacing)} if cube.spacing else {}),
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
