"""``voxload plan MODEL``: setups of ranks by what they take, and the best of them as a plan."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from voxload.catalog.table import Catalog
from voxload.cli.options import AllowOutside, catalog_at, check_file, check_picture, parse_extents
from voxload.cli.planning.tables import choice_table, draw_forecasts, forecast_table, layer_table, time_figures, why
from voxload.cli.terminal import Screen
from voxload.errors import UsageError
from voxload.plan.forecast.forecast import GOALS, Forecast, Oracle, pareto
from voxload.plan.forecast.layers import LayerCost
from voxload.plan.forecast.reading import DataSet
from voxload.plan.forecast.search import Besides, Found, search
from voxload.plan.forecast.training import NETWORKS, OPTIMIZERS, WRAPPERS, Training
from voxload.plan.platform import files
from voxload.units import parse_bytes

EPILOG = (
    "Example: voxload plan unet3d --sample 1,256,256,256 --batch 16 --machine lassen --ranks 4..256. "
    "Also: voxload plan calibrate, voxload plan validate and voxload plan diff; each has --help."
)
"""Shown at the end of the command's help."""

_TYPES = {"": "float32", "tf32": "tf32", "bf16": "bfloat16", "fp16": "float16"}


def plan(
    model: Annotated[
        str, typer.Argument(help=f"{', '.join(NETWORKS)}, or module:callable that returns one.", show_default=False)
    ],
    *,
    machine: Annotated[
        str, typer.Option(help=f"{', '.join(files.names())}, or a file of voxload plan calibrate.", show_default=False)
    ],
    sample: Annotated[
        str, typer.Option(help="Channels and extents C,D,H,W of a sample; with --data its own.", show_default=False)
    ] = "",
    batch: Annotated[int, typer.Option(help="Samples of a step, of all ranks together.", min=1)] = 16,
    ranks: Annotated[str, typer.Option(help="Numbers of ranks: 8,12 or 8..64, doubling.")] = "1..64",
    nodes: Annotated[int, typer.Option(help="Nodes that they share.", min=0, show_default="as many as they need")] = 0,
    memory: Annotated[str, typer.Option(help="Memory of a rank.", show_default="its device's")] = "",
    data: Annotated[str, typer.Option(help="Catalogue of the samples: what reading takes.", show_default=False)] = "",
    dataset: Annotated[str, typer.Option(help="Data set of the catalogue.", show_default="the only one")] = "",
    optimizer: Annotated[str, typer.Option(help=f"One of {', '.join(OPTIMIZERS)}.")] = "adam",
    amp: Annotated[
        str, typer.Option(help="tf32: products in TF32; bf16, fp16: torch.autocast to them.", show_default="float32")
    ] = "",
    wrapper: Annotated[str, typer.Option(help=f"What averages gradients: {', '.join(WRAPPERS)}.")] = "ddp",
    goal: Annotated[str, typer.Option(help=f"What to have least of: {', '.join(GOALS)}.")] = "time",
    layers: Annotated[
        int, typer.Option(help="Of so many of the best setups with blocks, choose what every layer cuts.", min=0)
    ] = 0,
    stages: Annotated[
        int, typer.Option(help="Try pipelines of up to so many stages, too.", min=0, show_default="none")
    ] = 0,
    checkpointing: Annotated[
        bool, typer.Option("--checkpointing", help="Let modules run again in the backward pass where memory is short.")
    ] = False,
    rows: Annotated[int, typer.Option(help="Rows of the table.", min=1)] = 12,
    explain: Annotated[
        str, typer.Option(help="Show what layers whose path begins so take in the best; all for all.", show_default="")
    ] = "",
    output: Annotated[Path | None, typer.Option(help="Write the best as a plan into this file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw time and memory over ranks into this PNG file.")] = None,
    allow_outside: AllowOutside = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print figures as JSON.")] = False,
) -> None:
    """Say how to split training over ranks, whether it fits, and what a step takes.

    Nothing is trained: the network runs once, without data. The best setup is traced again as the engine would run it.
    """
    check_file("--output", output)
    check_picture("--plot", plot)
    stored = None
    if data:
        catalog = Catalog.read(catalog_at(data), allow_outside=allow_outside)
        stored = DataSet.of(catalog, dataset, allow_outside=allow_outside)
    training = Training(model, _sample(sample, stored), batch, optimizer, _type(amp), wrapper)
    oracle = Oracle(training, files.load(machine), nodes=nodes, limit=parse_bytes(memory) if memory else 0)
    found = search(
        oracle,
        _counts(ranks),
        goal=goal,
        besides=Besides(layers, stages, recompute=checkpointing),
        data=stored,
        simulated=rows,
    )
    costs = found.layers("" if explain == "all" else explain) if explain else []
    if output is not None:
        found.plan(machine).write(output)
    if plot is not None:
        draw_forecasts(found.by_ranks(), plot, title=_title(oracle))
    if as_json:
        print(json.dumps(_answer(found, costs)))
        return
    _show(found, costs, rows)


def _show(found: Found, costs: Sequence[LayerCost], rows: int) -> None:
    """Print tables, and sentences about the best."""
    console, best = Screen(), found.best
    console.print(forecast_table(f"{_title(found.oracle)}; least {found.goal} first", found.setups[:rows]))
    console.print(why(found))
    for note in found.notes():
        console.print(note)
    if best.layers:
        console.print(f"\nLayers of {best.setup.describe()} that do not cut space alone:")
        console.print(choice_table(best))
    if best.recompute:
        console.print(f"\nModules that run again in the backward pass: {', '.join(best.recompute)}")
    if best.cuts:
        console.print(f"\nStages end with {', '.join(best.cuts)}")
    if costs:
        console.print(layer_table(f"Layers of {best.setup.describe()}", costs))


def _sample(text: str, stored: DataSet | None) -> tuple[int, int, int, int]:
    if not text and stored is None:
        raise UsageError(
            "--sample", found="nothing", expected="four extents, such as 4,512,512,512", remedy="or --data"
        )
    extents = parse_extents("--sample", text) if text else (stored.shape if stored else ())
    if len(extents) != 4:
        raise UsageError("--sample", found=str(extents), expected="channels and three extents, such as 4,512,512,512")
    return extents[0], extents[1], extents[2], extents[3]


def _type(amp: str) -> str:
    if amp not in _TYPES:
        raise UsageError("--amp", found=repr(amp), expected=", ".join(filter(None, _TYPES)))
    return _TYPES[amp]


def _counts(text: str) -> list[int]:
    """Return numbers of ranks.

    >>> _counts("8..64"), _counts("6, 12")
    ([8, 16, 32, 64], [6, 12])
    """
    wanted = "numbers with commas, or a first and a last one such as 8..64"
    spread = re.fullmatch(r"\s*(\d+)\s*\.\.\s*(\d+)\s*", text)
    if spread is not None:
        first, last = map(int, spread.groups())
        found = [first * 2**power for power in range(max(last, 1).bit_length()) if first * 2**power <= last]
    else:
        found = list(parse_extents("--ranks", text))
    if not found or min(found) < 1:
        raise UsageError("--ranks", found=repr(text), expected=wanted)
    return found


def _title(oracle: Oracle) -> str:
    training = oracle.training
    size = "x".join(map(str, training.sample))
    return f"{training.model} of {size}, batches of {training.batch}, {training.dtype}, on {oracle.platform.name}"


def _answer(found: Found, layers: Sequence[LayerCost]) -> dict[str, Any]:
    """Return all figures as plain values."""
    return {
        "training": asdict(found.oracle.training),
        "machine": found.oracle.platform.name,
        "goal": found.goal,
        "setups": [_figures(each) for each in found.setups],
        "pareto": [_figures(each) for each in pareto(found.setups)],
        "layers": [asdict(each) for each in layers],
        "notes": found.notes(),
    }


def _figures(each: Forecast) -> dict[str, Any]:
    setup = each.setup
    return {
        "ranks": setup.ranks,
        "spatial": list(setup.spatial),
        "groups": setup.groups,
        "samples": setup.samples,
        "stages": setup.stages,
        "microbatches": setup.microbatches,
        "cuts": list(each.cuts),
        "recompute": list(each.recompute),
        "layers": dict(each.layers),
        "fits": each.fits,
        "step_seconds": each.step,
        "epoch_seconds": each.epoch,
        "step_joules": each.joules or None,
        "seconds": time_figures(each),
        "memory_bytes": asdict(each.memory.use) | {"total": each.memory.use.total},
        "memory_at": {"operation": each.memory.operation, "layer": each.memory.path},
        "reading": None if each.reading is None else asdict(each.reading),
    }
