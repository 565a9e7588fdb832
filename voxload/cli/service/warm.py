"""``voxload serve warm``: have blocks near before any job asks for them."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Annotated, Any

import typer

from voxload.cli.options import AllowOutside, parse_names, parse_triple
from voxload.cli.terminal import Screen, count_bar
from voxload.data.dataset import VolumeDataset
from voxload.errors import UsageError
from voxload.grid import ProcessGrid
from voxload.loader.warming import WarmSet, first_order, warm_set
from voxload.serve.asking import Visit
from voxload.serve.place import service_path
from voxload.units import format_bytes

EPILOG = "Example: voxload serve warm universes/ --dataset full --spatial 2,2,2 --seed 0 --hold 3600"
"""Shown at the end of the command's help."""
_HOLD = 3600.0
"""Seconds: a job that waits in a queue for longer had better be warmed for by what starts it."""
_PAUSE = 0.2
"""Seconds between two looks at how far it is."""

Data = Annotated[str, typer.Argument(help="A catalogue, its folder, a pattern or a URL.")]
Dataset = Annotated[str, typer.Option(help="Datasets of the samples, with commas, where they have several.")]
Axes = Annotated[str, typer.Option(help="Order of the stored axes where files do not say, such as CDHW.")]
Spatial = Annotated[str, typer.Option(help="Blocks d,h,w that jobs cut each sample into.")]
Ranks = Annotated[str, typer.Option(help="Ranks of a group on this node, such as 0,1,2,3.", show_default="all")]
Halo = Annotated[int, typer.Option(help="Voxels around each block.", min=0)]
Edge = Annotated[str, typer.Option("--boundary", help="What lies outside a sample: zero or periodic.")]
Seed = Annotated[
    int | None,
    typer.Option(
        help="Seed of the jobs' generator: what they use first is read first.", show_default="in order", min=0
    ),
]
Name = Annotated[str, typer.Option(help="By which it is let go.", show_default="the data's")]
Socket = Annotated[str, typer.Option(help="Path of the service's socket.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def warm(
    data: Data,
    *,
    dataset: Dataset = "",
    axes: Axes = "",
    spatial: Spatial = "1,1,1",
    ranks: Ranks = "",
    halo: Halo = 0,
    boundary: Edge = "zero",
    seed: Seed = None,
    hold: Annotated[float, typer.Option(help="Seconds for which it stays near.", min=1)] = _HOLD,
    name: Name = "",
    allow_outside: AllowOutside = False,
    socket: Socket = "auto",
    as_json: AsJson = False,
) -> None:
    """Have the service read what jobs will use, before they begin; it stays near for a while."""
    found = chosen(
        data, dataset, axes, spatial, ranks, halo=halo, boundary=boundary, seed=seed, allow_outside=allow_outside
    )
    keep(found, name or data, hold, socket=socket, as_json=as_json)


def chosen(
    data: str,
    dataset: str,
    axes: str,
    spatial: str,
    ranks: str,
    *,
    halo: int,
    boundary: str,
    seed: int | None,
    allow_outside: bool,
) -> WarmSet:
    """Return the blocks that options name; raises UsageError where they name none, and what opening them raises."""
    cuts = parse_triple("--spatial", spatial)
    grid, names = ProcessGrid(spatial=cuts, world_size=prod(cuts)), parse_names(dataset)
    samples = [
        VolumeDataset(
            data,
            fields={one: one for one in names} or None,
            axes=axes or None,
            grid=replace(grid, rank=rank),
            halo=halo,
            boundary=boundary,
            allow_outside=allow_outside,
        )
        for rank in _ranks(ranks, grid.world_size)
    ]
    return warm_set(samples, first_order(len(samples[0]), seed))


def _ranks(text: str, count: int) -> list[int]:
    try:
        found = [int(one) for one in parse_names(text)] or list(range(count))
    except ValueError:
        found = [-1]
    if not all(0 <= one < count for one in found):
        raise UsageError("--ranks", found=repr(text), expected=f"numbers from 0 to {count - 1}, with commas")
    return found


def keep(found: WarmSet, name: str, seconds: float, *, socket: str, as_json: bool) -> None:
    """Have blocks kept, show how far it is, and say in the end what is there."""
    path = Path(service_path(socket))
    with Visit(path, "warm") as visit:
        visit.keep(name, found.blocks, found.uses, seconds=seconds)
    with count_bar("warm", total=len(found.blocks), unit="block") as bar:
        while True:
            kept, is_busy = _state(path, name)
            bar.update(kept["there"] - bar.n)
            if kept["there"] == kept["blocks"] or not is_busy:
                break
            time.sleep(_PAUSE)
    if as_json:
        print(json.dumps(kept, indent=2))
        return
    words = f"{kept['there']} of {kept['blocks']} blocks, {format_bytes(kept['bytes'])} in all, are near as {name!r}"
    why = "" if kept["there"] == kept["blocks"] else "; there is no room for the others, or they cannot be read"
    Screen().print(words + why)


def _state(path: Path, name: str) -> tuple[dict[str, Any], bool]:
    """Return how much of what is kept by a name is there, and whether anything is being read."""
    with Visit(path, "warm") as visit:
        found = visit.figures()
    kept = next((one for one in found["kept"] if one["name"] == name), None)
    if kept is None:
        raise UsageError(name, found="nothing that is kept by this name", expected="what was to be kept a moment ago")
    return kept, bool(found["reads"]["under_way"])
