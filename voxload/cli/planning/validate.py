"""``voxload plan validate``: plans that this machine can hold, run, beside what was said of them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from voxload.cli.options import parse_extents
from voxload.cli.planning.tables import seconds
from voxload.cli.terminal import Screen, count_bar
from voxload.errors import UsageError
from voxload.plan import load
from voxload.plan.forecast.training import NETWORKS, OPTIMIZERS
from voxload.plan.platform import files
from voxload.plan.validation.run import Compared, ValidationCase, kendall, predict, validate
from voxload.units import format_bytes

EPILOG = "Example: voxload plan validate unet3d --sample 1,64,64,64 --machine node.toml --ranks 1,2"
"""Shown at the end of the command's help."""


def validate_plans(
    model: Annotated[
        str, typer.Argument(help=f"{', '.join(NETWORKS)}, module:callable, or a plan's file.", show_default=False)
    ],
    *,
    machine: Annotated[str, typer.Option(help="File of voxload plan calibrate on this machine.", show_default=False)],
    sample: Annotated[
        str, typer.Option(help="Channels and extents C,D,H,W of a sample.", show_default="the plan's")
    ] = "",
    ranks: Annotated[str, typer.Option(help="Numbers of ranks, with commas.")] = "1,2",
    samples: Annotated[str, typer.Option(help="Samples of a group's batch, with commas.")] = "1",
    optimizer: Annotated[str, typer.Option(help=f"One of {', '.join(OPTIMIZERS)}.")] = "adam",
    as_json: Annotated[bool, typer.Option("--json", help="Print figures as JSON.")] = False,
) -> None:
    """Train steps on this machine, and print their time and memory beside what was said of them.

    Of each number of ranks: groups of one rank, and one group whose blocks cut depth, and depth and height. Of a plan,
    what it says itself.
    """
    cases = _of_plan(Path(model)) if model.endswith(".json") else _cases(model, sample, (ranks, samples), optimizer)
    with count_bar("validating", total=len(cases), unit="setup") as bar:

        def show(_found: Compared) -> None:
            bar.update(1)

        platform = files.load(machine)
        found = validate([(each, predict(each, platform)) for each in cases], hear=show)
    accuracy = fmean(each.accuracy for each in found)
    memory = fmean(abs(each.memory_error) for each in found)
    tau = kendall([(each.predicted.time.total, each.measured.total) for each in found])
    if as_json:
        print(
            json.dumps({"accuracy": accuracy, "memory_error": memory, "tau": tau, "cases": list(map(_figures, found))})
        )
        return
    console = Screen()
    console.print(_table(found))
    console.print(
        f"Mean accuracy of a step's time {accuracy:.1%}, memory off by {memory:.1%}, "
        f"Kendall's tau of the order {tau:.2f}"
    )


def _of_plan(path: Path) -> list[ValidationCase]:
    plan = load(path)
    layers = dict(plan.layers)
    about = (plan.model, plan.sample, plan.spatial, plan.groups, plan.samples, plan.optimizer, layers)
    return [
        ValidationCase(
            *about,
            stages=plan.stages,
            microbatches=plan.microbatches,
            cuts=plan.cuts,
            wrapper=plan.wrapper,
            recompute=plan.recompute,
        )
    ]


def _cases(model: str, sample: str, counts: tuple[str, str], optimizer: str) -> list[ValidationCase]:
    extents = parse_extents("--sample", sample) if sample else ()
    if len(extents) != 4 or optimizer not in OPTIMIZERS:
        raise UsageError(
            "validation",
            found=f"--sample {sample!r}, --optimizer {optimizer!r}",
            expected=f"four extents such as 1,64,64,64, and one of {', '.join(OPTIMIZERS)}",
        )
    shape = extents[0], extents[1], extents[2], extents[3]
    numbers, batches = parse_extents("--ranks", counts[0]), parse_extents("--samples", counts[1])
    found = []
    for count in numbers:
        grids = {((1, 1, 1), count), ((count, 1, 1), 1)}
        if count % 2 == 0 and count > 2:
            grids |= {((count // 2, 2, 1), 1), ((2, 1, 1), count // 2)}
        found += [
            ValidationCase(model, shape, spatial, groups, each, optimizer)
            for spatial, groups in sorted(grids)
            for each in batches
        ]
    return found


def _table(found: list[Compared]) -> Table:
    table = Table(title="said / measured", title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for name in ("groups\nx blocks", "samples", "forward\ns", "backward\ns", "update\ns", "step\ns", "right", "memory"):
        table.add_column(name, justify="left" if name.startswith("groups") else "right", no_wrap=True)
    for each in found:
        time, real, use = each.predicted.time, each.measured, each.predicted.memory.use
        backward = time.total - time.until_backward - time.update
        parts = (
            (time.until_backward, real.forward),
            (backward, real.backward),
            (time.update, real.update),
            (time.total, real.total),
        )
        table.add_row(
            each.case.setup.describe(),
            str(each.case.samples),
            *(f"{seconds(said)} / {seconds(took)}" for said, took in parts),
            f"{each.accuracy:.0%}",
            f"{format_bytes(use.total - use.staging)} ({each.memory_error:+.1%})",
        )
    return table


def _figures(each: Compared) -> dict[str, Any]:
    return {
        "case": asdict(each.case),
        "said": asdict(each.predicted.time) | {"total": each.predicted.time.total},
        "said_bytes": asdict(each.predicted.memory.use),
        "measured": asdict(each.measured),
        "accuracy": each.accuracy,
        "memory_error": each.memory_error,
    }
