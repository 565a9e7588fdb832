"""``voxload info``: what a file holds, raw or stored, and what reading it costs each rank of a grid."""

from __future__ import annotations

import enum
import json
import shlex
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType

from voxload.cli.headerless import headerless
from voxload.cli.inspect.items import Items, python_call
from voxload.cli.inspect.planes import millimetres
from voxload.cli.inspect.raw import LISTED, Choice, RawListing, listing_tables, names_table
from voxload.cli.inspect.stored import Ranks, advice_line, cost_table, plot_volume, volume_figures, volume_table
from voxload.cli.inspect.subject import Given, Subject, find_subject, is_catalog
from voxload.cli.inspect.volumes import look, volumes_table
from voxload.cli.options import AllowOutside, check_picture
from voxload.cli.terminal import Screen
from voxload.convert.sources.hints import MemoryOrder
from voxload.data.lists.reading import Reading
from voxload.errors import UsageError
from voxload.geometry import Boundary, Halo
from voxload.readers import Location, Missing, Reader
from voxload.readers.handles import Handles
from voxload.readers.shards import ShardFormat, is_shard

if TYPE_CHECKING:
    from voxload.cli.inspect.catalog import CatalogRow

EPILOG = "Example: voxload info universe.zarr --spatial 2,2,2 --halo 1 --plot slices.png"
"""Shown at the end of the command's help."""


class Decode(enum.StrEnum):
    """What a data set does about CF attributes."""

    CF = "cf"
    STORED = "stored"


def info(
    path: Annotated[
        str, typer.Argument(help="A raw file or a folder of them, a volume, its URL, a catalogue.", show_default=False)
    ],
    *,
    dataset: Annotated[str, typer.Option(help="Name of the volume inside the file.")] = "",
    sample: Annotated[str, typer.Option(help="Id of the sample, of a catalogue or of raw files with several.")] = "",
    part: Annotated[str, typer.Option(help="Which of several samples in a raw file, such as 0007.")] = "",
    kind: Annotated[str, typer.Option("--from", help="Format of a raw file; found out if not given.")] = "",
    axes: Annotated[
        str, typer.Option(help="Axes as stored, such as DHWC, or TCDHW with time steps and NDHW with samples.")
    ] = "",
    level: Annotated[
        int | None, typer.Option(help="Resolution of an OME-Zarr image; 0, the finest, by default.", min=0)
    ] = None,
    decode: Annotated[
        Decode | None,
        typer.Option(help="CF attributes such as scale_factor: apply them (cf), or show what is stored (stored)."),
    ] = None,
    shape: Annotated[str, typer.Option(help="Headerless binary: extents as stored, such as 512,512,512.")] = "",
    dtype: Annotated[str, typer.Option(help="Headerless binary: numpy type, such as <f4.")] = "",
    order: Annotated[
        MemoryOrder | None,
        typer.Option(help="Headerless binary: whether the last index runs fastest (C, the default) or the first (F)."),
    ] = None,
    header_bytes: Annotated[int, typer.Option(help="Headerless binary: bytes before the first voxel.", min=0)] = 0,
    spatial: Annotated[str, typer.Option(help="Grid d,h,w: show what each of its ranks reads.")] = "",
    halo: Annotated[int, typer.Option(help="Voxels wanted around each block.", min=0)] = 0,
    boundary: Annotated[Boundary, typer.Option(help="What lies outside the sample.")] = Boundary.ZERO,
    plot: Annotated[Path | None, typer.Option(help="PNG file of the three central planes, blocks and chunks.")] = None,
    allow_outside: AllowOutside = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print figures as JSON.")] = False,
) -> None:
    """Say what a file is, how it is stored, and what reading it costs.

    Of a stored volume, what a VolumeDataset makes of it; of a raw file, the cubes that a conversion would find in it.
    No voxel is read but those of a picture.
    """
    check_picture("--plot", plot)
    reading = Reading.parse(decode, level)
    answer = Answer(Ranks(spatial, Halo.parse(halo), boundary), plot, None if decode is None else str(decode))
    if ShardFormat().claims(path):
        answer.add_member(reading.location(path, dataset, axes=axes or None, within=""))
    elif not is_catalog(path):
        _check_no_shard(path)
        binary = headerless(shape, dtype, order=order, header_bytes=header_bytes)
        choice = Choice(sample, dataset, part)
        given = Given(path, choice, axes, binary, kind, allow_outside, reading)
        answer.add_subject(find_subject(given), given)
    else:
        from voxload.cli.inspect.catalog import CatalogRow, read_catalog, whole_catalog  # noqa: PLC0415 - brings pyarrow

        if sample or plot is not None or spatial:
            catalog = read_catalog(path, allow_outside=allow_outside)
            answer.add_row(CatalogRow.find(catalog, sample, dataset, reading=reading))
        else:
            answer.add_catalog(*whole_catalog(path))
    answer.show(as_json=as_json)


def _check_no_shard(path: str) -> None:
    """Refuse an archive of samples, of which a catalogue is wanted."""
    if is_shard(path) and Path(path).is_file():
        raise UsageError(
            path,
            found="a tar archive",
            expected=f"one of its samples, such as {path}/0001, or a catalogue of it",
            remedy=f"voxload catalog shards catalog.parquet {shlex.quote(path)}",
        )


@dataclass(slots=True)
class Answer:
    """Figures, and the tables that show them."""

    ranks: Ranks
    """Who would read."""
    plot: Path | None
    """Where a picture goes; None for no picture."""
    decode: str | None = None
    """What is done about CF attributes, as a data set is told it."""
    figures: dict[str, Any] = field(default_factory=dict)
    """Plain values."""
    tables: list[RenderableType] = field(default_factory=list)
    """The same for people."""

    def add_catalog(self, figures: dict[str, Any], table: RenderableType) -> None:
        """Add what a catalogue holds in all."""
        self.figures |= figures
        self.tables.append(table)

    def add_member(self, location: Location) -> None:
        """Add a volume of a sample in a shard."""
        self._add_volume(location, {}, spacing=None)

    def add_row(self, row: CatalogRow) -> None:
        """Add one volume of one sample of a catalogue."""
        self._add_volume(row.location, row.rows(), sample=row.entry.sample, spacing=row.entry.spacing)
        self.figures |= row.figures()

    def add_subject(self, subject: Subject, given: Given) -> None:
        """Add what a path is; raises UsageError when ranks are asked for of what no rank can read."""
        listing = subject.listing
        if subject.many:
            self._add_many(subject)
        if subject.volumes:
            self._add_volumes(subject, given)
        if subject.stored is not None:
            packed = subject.packed
            rows = {"spacing (D, H, W)": millimetres(subject.spacing)} if subject.spacing else {}
            rows = rows if packed is None else packed.rows() | rows
            self._add_volume(subject.stored, rows, spacing=subject.spacing, converts=not subject.refusal)
            self._add_call(given)
            if packed is not None:
                self.figures |= {"sample": packed.sample, "packed_samples": packed.samples}
        elif listing is not None and not subject.volumes:
            self._add_raw(listing)
        if listing is not None:
            self.figures |= listing.figures()
            self.tables.append(listing_tables(listing))
            if subject.stored is not None and listing.axes not in ("", self.figures["axes"]):
                self.tables.append(
                    f"A data set reads its axes as {self.figures['axes']}, by their names; voxload convert takes them "
                    f"for {listing.axes}, unless it is told others with --axes."
                )
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

    def _add_volume(
        self,
        location: Location,
        rows: dict[str, str],
        *,
        sample: str = "",
        spacing: tuple[float, ...] | None,
        converts: bool = True,
    ) -> None:
        with closing(Handles(Missing.FILL)) as handles, handles.lease(location) as whole:
            items = Items.of(whole.describe(), location, self.decode)
            shape = {"shape": list(items.shape), "spacing": spacing and list(spacing)}
            figures = volume_figures(whole) | shape | items.figures()
            self.figures |= figures
            self.tables.append(volume_table(figures, rows, items.rows()))
            with handles.lease(items.location) as reader:
                self._add_ranks(reader, converts=converts)
                if self.plot is not None:
                    unpacks_to = items.dtype if items.packing else None
                    plot_volume(reader, self.plot, self.ranks, sample=sample, spacing=spacing, unpacks_to=unpacks_to)

    def _add_ranks(self, reader: Reader, *, converts: bool) -> None:
        """Add what each rank reads of an item, where there is a grid."""
        costs, advice = self.ranks.costs(reader), self.ranks.advice(reader)
        self.figures["ranks"] = [cost.figures() for cost in costs]
        self.figures["advice"] = asdict(advice) if advice is not None else None
        if advice is not None:
            self.tables += [cost_table(costs), advice_line(advice, costs, converts=converts)]

    def _add_call(self, given: Given) -> None:
        """Say how to read it in Python, where that takes more than the path."""
        if self.figures["options"]:
            self.tables.append(f"Read it by {python_call(given.path, self.figures['options'])}")

    def _add_volumes(self, subject: Subject, given: Given) -> None:
        self._check_one(subject.format, len(subject.volumes))
        found = look(subject.volumes[:LISTED], given.location, self.decode)
        kind, names = subject.format, list(subject.volumes)
        arrays = [one.figures() for one in found]
        self.figures |= {"format": kind, "volumes": len(names), "datasets": names[:LISTED], "arrays": arrays}
        self.tables.append(volumes_table(kind, found, len(names)))

    def _check_one(self, kind: str, count: int) -> None:
        """Refuse to show ranks, or to draw, what is several volumes."""
        if self.ranks.spatial or self.plot is not None:
            raise UsageError(kind, found=f"{count} volumes", expected="one", remedy="name one with --dataset")

    def _add_many(self, subject: Subject) -> None:
        self._check_one(subject.format, len(subject.many))
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
