"""Answer: what ``voxload info`` found out, printed as tables or as JSON."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from voxload.catalog import Catalog
from voxload.cli.console import Screen
from voxload.cli.info_catalog import CatalogRow, catalog_figures, catalog_table
from voxload.cli.info_source import RawListing
from voxload.cli.info_source_tables import LISTED, listing_tables, names_table
from voxload.cli.info_stored import Ranks, plot_volume, volume_figures
from voxload.cli.info_subject import Subject
from voxload.cli.info_tables import advice_line, cost_table, volume_table
from voxload.errors import UsageError
from voxload.readers import Location, Missing, open_reader


@dataclass(slots=True)
class Answer:
    """Figures, and the tables that show them."""

    ranks: Ranks
    """Who would read."""
    plot: Path | None
    """Where a picture goes; None for no picture."""
    figures: dict[str, Any] = field(default_factory=dict)
    """Plain values."""
    tables: list[RenderableType] = field(default_factory=list)
    """The same for people."""

    def add_catalog(self, catalog: Catalog) -> None:
        """Add what a catalogue holds in all."""
        self.figures |= catalog_figures(catalog)
        self.tables.append(catalog_table(self.figures))

    def add_row(self, row: CatalogRow) -> None:
        """Add one volume of one sample of a catalogue."""
        self._add_volume(row.location, row.rows(), sample=row.entry.sample)
        self.figures |= row.figures()

    def add_subject(self, subject: Subject) -> None:
        """Add what a path is; raises UsageError when ranks are asked for of what no rank can read."""
        listing = subject.listing
        if subject.many:
            self._add_many(subject)
        if subject.stored is not None:
            packed = subject.packed
            self._add_volume(subject.stored, {} if packed is None else packed.rows())
            if packed is not None:
                self.figures |= {"sample": packed.sample, "packed_samples": packed.samples}
        elif listing is not None:
            self._add_raw(listing)
        if listing is not None:
            self.figures |= listing.figures()
            self.tables.append(listing_tables(listing))
        if subject.refusal:
            self.figures["refusal"] = subject.refusal
            self.tables.append(f"voxload convert would not take it: {subject.refusal}")

    def show(self, *, as_json: bool) -> None:
        """Print figures or tables."""
        if as_json:
            print(json.dumps(self.figures))
            return
        console = Screen()
        for table in self.tables:
            console.print(table)

    def _add_volume(self, location: Location, rows: dict[str, str], *, sample: str = "") -> None:
        with closing(open_reader(location, missing=Missing.FILL)) as reader:
            costs, advice = self.ranks.costs(reader), self.ranks.advice(reader)
            figures = volume_figures(reader)
            self.figures |= figures | {
                "ranks": [cost.figures() for cost in costs],
                "advice": asdict(advice) if advice is not None else None,
            }
            self.tables.append(volume_table(figures, rows))
            if advice is not None:
                self.tables += [cost_table(costs), advice_line(advice, costs)]
            if self.plot is not None:
                plot_volume(reader, self.plot, sample=sample)

    def _add_many(self, subject: Subject) -> None:
        if self.ranks.spatial or self.plot is not None:
            raise UsageError(
                subject.format, found=f"{len(subject.many)} volumes", expected="one", remedy="name one with --dataset"
            )
        shown = list(subject.many[:LISTED])
        self.figures |= {"format": subject.format, "volumes": len(subject.many), "datasets": shown}
        self.tables.append(names_table(subject.format, subject.many))

    def _add_raw(self, listing: RawListing) -> None:
        if self.ranks.spatial:
            raise UsageError(
                f"--spatial of {listing.path}",
                found=listing.format or "raw files",
                expected="a volume that ranks can read boxes of",
                remedy="convert it with voxload convert, or name one volume of it with --dataset",
            )
        if self.plot is not None:
            listing.plot(self.plot)
