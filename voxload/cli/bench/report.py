"""``voxload bench report``: results as one page that needs no network, and its plots as pictures.

The page's tables need nothing but the results. Without matplotlib they are written all the same, and the page and the
terminal say that the plots are missing; ``--png`` asks for pictures, and is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from voxload.benchmark.report.page import NO_PLOTS, draw, page
from voxload.benchmark.report.result import read_results
from voxload.benchmark.results.verdict import judge
from voxload.cli.options import check_file, check_folder
from voxload.files.atomic import replacing
from voxload.files.pictures import check_drawing, missing_for_drawing
from voxload.text import shown

EPILOG = "Example: voxload bench report 1-rank.json 2-ranks.json 4-ranks.json --output report.html --png plots"
"""Shown at the end of the command's help."""


def report(
    results: Annotated[list[Path], typer.Argument(help="Results of voxload bench run.", show_default=False)],
    *,
    output: Annotated[Path, typer.Option(help="The page, an HTML file.")] = Path("report.html"),
    png: Annotated[
        Path | None, typer.Option(help="Folder that gets the plots as PNG files too.", show_default=False)
    ] = None,
) -> None:
    """Say which loader is the fastest, and draw throughput, latencies, stalls, tiers, bytes and epochs."""
    check_file("--output", output)
    check_folder("--png", png)
    if png is not None:
        check_drawing("--png")
    found = read_results(results)
    lack = missing_for_drawing("plots")
    plots = NO_PLOTS if lack else draw(found)
    with replacing(output) as temporary:
        temporary.write_text(page(found, plots, lack=lack), encoding="utf-8")
    if len(found) > 1:
        said = judge([(result.name, result.document) for result in found])
        for line in (*said.headlines(), *said.apart):
            print(shown(line))
    print(f"wrote {shown(str(output))}")
    if lack:
        print(f"It has no plots: {lack}")
    if png is not None:
        png.mkdir(parents=True, exist_ok=True)
        for picture in plots.every:
            print(f"wrote {shown(str(picture.write_png(png)))}")
