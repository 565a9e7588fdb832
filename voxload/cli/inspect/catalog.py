"""Catalogues: what one holds in all, and where one of its samples is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.table import Table

from voxload.catalog.statistics import Summary
from voxload.catalog.table import Catalog, Entry
from voxload.cli.inspect.planes import millimetres
from voxload.cli.inspect.stored import extents
from voxload.data.lists.reading import USUAL, Reading
from voxload.data.lists.samples import location_of
from voxload.errors import NotFoundError, UsageError
from voxload.readers import Location
from voxload.units import format_bytes

_LISTED = 10
"""Names that a message lists at most."""


def read_catalog(path: str, *, allow_outside: bool) -> Catalog:
    """Read the catalogue at a path or in that folder; takes and raises what `Catalog.read` does."""
    return Catalog.read(path, allow_outside=allow_outside)


def whole_catalog(path: str) -> tuple[dict[str, Any], Table]:
    """Return what a catalogue holds in all, as figures and as a table; nothing that it names is opened."""
    figures = _figures(read_catalog(path, allow_outside=True))
    return figures, _table(figures)


def _figures(catalog: Catalog) -> dict[str, Any]:
    """Return what a catalogue holds, as plain values; samples that share a stored volume count as one volume."""
    columns = {name: catalog.table.column(name).to_pylist() for name in ("path", "dataset", "checksums", "window")}
    volumes = list(zip(columns["path"], columns["dataset"], strict=True))
    summed = {volume for volume, name in zip(volumes, columns["checksums"], strict=True) if name}
    return {
        "samples": len(catalog.samples),
        "datasets": list(catalog.datasets),
        "targets": list(catalog.target_names),
        "shapes": sorted({tuple(shape) for shape in catalog.table.column("shape").to_pylist()}),
        "stored_bytes": sum(catalog.table.column("stored_bytes").to_pylist()),
        "volumes": len(set(volumes)),
        "windows": sum(window is not None for window in columns["window"]),
        "universes": len(set(catalog.table.column("universe").to_pylist()) - {""}),
        "checksums": len(summed),
    }


def _table(figures: dict[str, Any]) -> Table:
    """Return what a catalogue holds."""
    table = Table(show_header=False)
    table.add_row("what", "catalogue")
    cut = f", those cut from {figures['universes']} universes included" if figures["universes"] else ""
    table.add_row("samples", f"{figures['samples']}{cut}")
    table.add_row("datasets", ", ".join(name or "(unnamed)" for name in figures["datasets"]))
    table.add_row(
        "shapes as stored" if not figures["windows"] else "shapes", ", ".join(map(extents, figures["shapes"]))
    )
    table.add_row("targets", ", ".join(figures["targets"]) or "none")
    shared = f", {figures['windows']} rows of windows that share them" if figures["windows"] else ""
    table.add_row("volumes", f"{figures['volumes']}{shared}")
    table.add_row("stored", format_bytes(figures["stored_bytes"]))
    table.add_row("checksums", _share(figures["checksums"], figures["volumes"]))
    return table


@dataclass(frozen=True, slots=True)
class CatalogRow:
    """One volume of one sample."""

    catalog: Catalog
    """Where it is listed."""
    entry: Entry
    """What is said of it."""
    reading: Reading = USUAL
    """How it is read, as a data set is told it."""

    @classmethod
    def find(cls, catalog: Catalog, sample: str, dataset: str, *, reading: Reading) -> CatalogRow:
        """Return the row of a sample, or of the only one there is.

        Raises UsageError when there are several and none is named, NotFoundError when the named one is not there.
        """
        chosen = sample or _only(f"catalogue in {catalog.root}", catalog.samples, "--sample")
        datasets = [name for other, name in catalog.keys if other == chosen]
        if not datasets:
            raise NotFoundError(
                f"catalogue in {catalog.root}",
                found=f"no sample {chosen!r}",
                expected=f"one of {_listed(catalog.samples)}",
            )
        name = dataset or _only(f"sample {chosen!r}", datasets, "--dataset")
        return cls(catalog, catalog.entry(chosen, name), reading)

    @property
    def location(self) -> Location:
        """Where it is stored, with its window of the volume."""
        return location_of(self.entry, self.catalog.root, self.reading, allow_outside=self.catalog.allow_outside)

    def figures(self) -> dict[str, Any]:
        """Return what the catalogue says of it, as plain values."""
        entry = self.entry
        return {
            "sample": entry.sample,
            "universe": entry.universe,
            "origin": None if entry.origin is None else list(entry.origin),
            "spacing": entry.spacing and list(entry.spacing),
            "affine": entry.affine and list(entry.affine),
            "targets": dict(entry.targets),
        }

    def rows(self) -> dict[str, str]:
        """Return what the catalogue says of it, for a table."""
        entry = self.entry
        origin = "" if entry.origin is None else f" at {entry.origin}"
        summary = self.catalog.summary(entry.sample, entry.dataset)
        rows = {"sample": entry.sample}
        if entry.universe:
            rows["cut from"] = f"universe {entry.universe}{origin}"
        if entry.spacing is not None:
            rows["spacing (D, H, W)"] = millimetres(entry.spacing)
        rows["targets"] = ", ".join(f"{name}={value:.6g}" for name, value in entry.targets.items()) or "none"
        if summary is not None:
            rows["voxels"] = _said(summary.whole)
        return rows


def _said(voxels: Summary) -> str:
    """Return the figures of voxels as text."""
    if voxels.min is None or voxels.max is None or voxels.mean is None or voxels.std is None:
        return "none that is finite"
    odd = f", {voxels.nan_count} NaN, {voxels.inf_count} infinite" if voxels.nan_count or voxels.inf_count else ""
    return f"{voxels.min:.6g} to {voxels.max:.6g}, mean {voxels.mean:.6g}, std {voxels.std:.6g}{odd}"


def _only(subject: str, names: tuple[str, ...] | list[str], option: str) -> str:
    if len(names) != 1:
        raise UsageError(subject, found=f"{len(names)} there: {_listed(names)}", remedy=f"name one with {option}")
    return names[0]


def _listed(names: tuple[str, ...] | list[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{', '.join(name or '(unnamed)' for name in names[:_LISTED])}{more}"


def _share(summed: int, volumes: int) -> str:
    """Say how many volumes have checksums."""
    if not summed:
        return "none (voxload verify --write records them)"
    return "of every chunk, compared at every read" if summed == volumes else f"of {summed} of {volumes} volumes"
