"""``voxload bench sweep``: which threads, grid, chunks and codec feed fastest, and where more is not worth it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from voxload.benchmark.measure.document import Document
from voxload.benchmark.run.sweep import (
    Choice,
    Course,
    Factors,
    Setting,
    Spatial,
    Swept,
    best_setting,
    choices,
    run_sweep,
)
from voxload.benchmark.workload.emulation import KINDS
from voxload.benchmark.workload.workload import NEVER, Coldness, Emulation, Length, Samples, Share, Supply, Workload
from voxload.cli.options import AllowOutside, check_folder, parse_extents, parse_names, parse_triple
from voxload.cli.terminal import Screen, count_bar
from voxload.convert.chunk_advice import advise
from voxload.errors import UsageError
from voxload.geometry import Boundary, Halo
from voxload.grid import ProcessGrid, launched_as

EPILOG = (
    "Example: voxload bench sweep bench-data --threads 1,2,4 --chunks '32,32,32;64,64,64' --spatial 2,2,1 --cold run"
)
"""Shown at the end of the command's help."""


def sweep(
    data: Annotated[str, typer.Argument(help="A data set; one of bench generate for chunks and codecs.")],
    *,
    threads: Annotated[str, typer.Option(help="Threads of each rank to try, such as 1,2,4.")] = "",
    allow_outside: AllowOutside = False,
    spatial: Annotated[str, typer.Option(help="Grids to try, such as '1,1,1;2,1,1'.")] = "1,1,1",
    chunks: Annotated[str, typer.Option(help="Chunks d,h,w to try, such as '32,32,32;64,64,64'.")] = "",
    codec: Annotated[str, typer.Option(help="Codecs to try, such as none,gzip,zstd.")] = "",
    nproc: Annotated[int, typer.Option(help="Processes of each run.", show_default="the grid's blocks", min=0)] = 0,
    halo: Annotated[int, typer.Option(help="Voxels around each block.", min=0)] = 0,
    boundary: Annotated[str, typer.Option(help="What lies outside a sample: zero or periodic.")] = "zero",
    batch_size: Annotated[int, typer.Option(help="Samples of a sample group's batch.", min=1)] = 1,
    loader: Annotated[str, typer.Option(help="What loads.")] = "voxload",
    dataset: Annotated[str, typer.Option(help="Dataset, where there are several.")] = "",
    steps: Annotated[int, typer.Option(help="Most steps of a run; 0 for an epoch.", min=0)] = 0,
    repeats: Annotated[int, typer.Option(help="Rounds, in which settings take turns.", min=1)] = 3,
    compute: Annotated[str, typer.Option(help=f"Emulated computing: {', '.join(KINDS)}.")] = "none",
    compute_time: Annotated[str, typer.Option(help="Of a step.")] = "0",
    cold: Annotated[str, typer.Option(help="When the page cache is emptied: never or run.")] = NEVER,
    folder: Annotated[Path, typer.Option(help="For results and generated data sets.")] = Path("voxload-sweep"),
    as_json: Annotated[bool, typer.Option("--json", help="Print figures as JSON.")] = False,
) -> None:
    """Measure every combination in turns; say which to use, and why."""
    if launched_as(os.environ)[1] > 1:
        raise UsageError("bench sweep", found="a launcher", expected="one process, which starts the ranks of each run")
    check_folder("--folder", folder)
    factors = Factors(
        threads=parse_extents("--threads", threads) if threads else (),
        spatial=_triples("--spatial", spatial),
        chunks=_triples("--chunks", chunks) if chunks else (),
        codec=parse_names(codec),
    )
    workload = Workload(
        samples=Samples(data, dataset, allow_outside=allow_outside),
        share=Share(spatial=factors.spatial[0], halo=halo, boundary=boundary, batch_size=batch_size),
        length=Length(steps=steps),
        supply=Supply(loader=loader),
        emulation=Emulation(compute, compute_time),
        coldness=Coldness(cold),
    )
    course = Course(factors, repeats, nproc, folder, tuple(sys.argv))
    swept = _run(workload, course)
    found = choices([each.point for each in swept], factors.varied)
    if as_json:
        print(json.dumps(_figures(swept, found), allow_nan=False))
    else:
        _show(swept, found, workload, folder)


def _triples(option: str, text: str) -> tuple[Spatial, ...]:
    return tuple(parse_triple(option, part) for part in text.split(";"))


def _run(workload: Workload, course: Course) -> tuple[Swept, ...]:
    total = course.repeats * len(tuple(course.factors.settings()))
    with count_bar("sweep", total=total, unit="run") as bar:

        def hear(event: dict[str, Any]) -> None:
            bar.set_description(f"{event['event']} {event['setting']}")
            bar.update(event["event"] == "measure")

        return run_sweep(workload, course, hear)


def _show(swept: Sequence[Swept], found: Sequence[Choice], workload: Workload, folder: Path) -> None:
    console = Screen()
    for label in swept[0].documents[0].labels:
        console.print(f"! {label}", markup=False)
    table = Table(title="Throughput by setting, medians of the rounds")
    columns = ("setting", "samples/s", "from", "to", "read over delivered", "decoded over delivered", "p99 stall, ms")
    for column in columns:
        is_name = column == "setting"
        table.add_column(column, justify="left" if is_name else "right", no_wrap=is_name)
    chosen = best_setting([each.point for each in swept], found)
    varied = [choice.factor for choice in found]
    for each in swept:
        rates = each.point.rates
        mark = " <" if each.setting == chosen else ""
        table.add_row(
            f"{_varied(each.setting, varied)}{mark}",
            f"{each.point.rate:.4g}",
            f"{min(rates):.4g}",
            f"{max(rates):.4g}",
            f"{_middle(each, 'amplification'):.3g}",
            _decoded(each),
            f"{1000 * _middle(each, 'stall.p99'):.3g}",
        )
    console.print(table)
    for choice in found:
        console.print(f"{choice.why[0].upper()}{choice.why[1:]}", markup=False, highlight=False)
    console.print(f"Use {_varied(chosen, varied)}.", markup=False, highlight=False)
    if any(each.setting.chunks for each in swept):
        console.print(_advice(swept[0].documents[0], workload), markup=False, highlight=False)
    console.print(f"Every run's result is in {folder}, for voxload bench report and compare.", markup=False)


def _varied(setting: Setting, varied: Sequence[str]) -> Setting:
    """Return what differs from setting to setting, for people."""
    values: dict[str, Any] = {factor: setting.value(factor) for factor in varied}
    return Setting(**values)


def _middle(each: Swept, figure: str) -> float:
    """Return the median of the rounds' figures."""
    values = sorted(document.median(figure) for document in each.documents)
    return values[len(values) // 2]


def _decoded(each: Swept) -> str:
    """Return how many bytes were decoded for each that was delivered, where the loader counts that."""
    decoded = delivered = 0
    for document in each.documents:
        for run in document.runs:
            delivered += int(run.figures["delivered_bytes"])
            for record in run.records:
                decoded += sum(int(epoch.counts.get("bytes_decoded", 0)) for epoch in record.epochs)
    return f"{decoded / delivered:.3g}" if decoded and delivered else "-"


def _advice(document: Document, workload: Workload) -> str:
    """Return what `voxload info` would advise for the first grid."""
    share = workload.share
    shape = tuple(document.data["shape"])
    itemsize = int(document.data["sample_bytes"]) // prod(shape)
    grid = ProcessGrid(share.spatial, prod(share.spatial), 0)
    advised = advise(shape, itemsize, grid=grid, halo=Halo.parse(share.halo), boundary=Boundary.parse(share.boundary))
    return f"voxload info advises chunks {'x'.join(map(str, advised.chunks))} for this grid."


def _figures(swept: Sequence[Swept], found: Sequence[Choice]) -> dict[str, Any]:
    return {
        "settings": [{"setting": asdict(each.setting), "samples_per_second": list(each.point.rates)} for each in swept],
        "choices": [asdict(choice) for choice in found],
        "use": asdict(best_setting([each.point for each in swept], found)),
    }
