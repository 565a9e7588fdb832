"""``voxload infer``: what a trained network says of the samples of a catalogue, each split over ranks."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from voxload.cli.options import AllowOutside, catalog_at, check_folder, parse_triple
from voxload.cli.terminal import Screen, count_bar
from voxload.grid import ProcessGrid, is_launched
from voxload.inference.plan import GAUSSIAN, MEAN, NIFTI, ZARR, InferencePlan
from voxload.inference.result import InferenceResult
from voxload.inference.worker import infer_rank, launch_inference
from voxload.launch.devices import DEVICES, HOST
from voxload.launch.processes import refuse_processes

EPILOG = "Example: voxload infer universes/ --checkpoint run --spatial 2,2,1 --nproc 4 --output predicted"
"""Shown at the end of the command's help."""


def infer(
    catalog: Annotated[str, typer.Argument(help="A catalogue, its folder, or the URL of either.", show_default=False)],
    *,
    checkpoint: Annotated[
        Path, typer.Option(help="The checkpoint.pt that voxload train wrote, or its folder.", show_default=False)
    ],
    spatial: Annotated[str, typer.Option(help="Blocks d,h,w that each sample is cut into.")] = "1,1,1",
    nproc: Annotated[int, typer.Option(help="Processes on this machine, a multiple of the blocks.", min=1)] = 1,
    device: Annotated[
        str, typer.Option(help=f"What each process computes on: {' or '.join(DEVICES)}, a GPU of its own.")
    ] = HOST,
    batch_size: Annotated[int, typer.Option(help="Samples of one sample group at a time.")] = 1,
    dataset: Annotated[
        str, typer.Option(help="Dataset to predict from.", show_default="the one trained on, or the only one")
    ] = "",
    labels: Annotated[
        str, typer.Option(help="Dataset with true classes.", show_default="the one trained on, where it is there")
    ] = "",
    patch: Annotated[
        str,
        typer.Option(
            help="Extents d,h,w of patches, predicted one by one; 0,0,0 for whole samples.",
            show_default="those trained on",
        ),
    ] = "",
    overlap: Annotated[float, typer.Option(help="Share of a patch that the next one has too.")] = 0.5,
    stitch: Annotated[
        str, typer.Option(help=f"How patches are put together: {GAUSSIAN}, by what lies in the middle, or {MEAN}.")
    ] = GAUSSIAN,
    form: Annotated[
        str, typer.Option("--format", help=f"How a U-Net's classes are stored: {ZARR}, or {NIFTI}, an image a sample.")
    ] = ZARR,
    output: Annotated[Path, typer.Option(help="Folder for the predictions.")] = Path("infer-report"),
    allow_outside: AllowOutside = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Predict from whole samples that several processes share.

    Runs on the CPUs or GPUs of this machine, on any grid, whatever grid the network was trained on.

    CosmoFlow's targets go to OUTPUT/predictions.csv and .parquet, in their own units.

    A U-Net that learnt from patches predicts patches that overlap, each by one process, which are put together; samples
    may be of any extents. One that learnt from whole samples can be told to with --patch.

    A U-Net's classes go to OUTPUT/predictions, Zarr with a catalogue, and their Dice to OUTPUT/dice.csv. With --format
    nifti they are compressed images, SAMPLE.nii.gz, which lie where the samples lie in the patient.
    """
    check_folder("--output", output)
    plan = InferencePlan(
        catalog=catalog_at(catalog),
        checkpoint=os.fspath(checkpoint),
        output=os.fspath(output),
        spatial=parse_triple("--spatial", spatial),
        device=device,
        batch_size=batch_size,
        dataset=dataset,
        labels=labels,
        allow_outside=allow_outside,
        patch=parse_triple("--patch", patch) if patch else (),
        overlap=overlap,
        stitch=stitch,
        format=form,
    )
    result = _infer_with_progress(plan, processes=nproc)
    if result is None:  # another rank than the first
        return
    if as_json:
        print(json.dumps(result.to_dict()))
        return
    _show(result, output, console=Screen())


def _infer_with_progress(plan: InferencePlan, *, processes: int) -> InferenceResult | None:
    """Run `plan` on local processes behind a progress bar; the bar shows only on a terminal."""
    with count_bar("predicting", total=0, unit="sample") as bar:

        def show(event: dict[str, Any]) -> None:
            if event["event"] == "begin":
                bar.reset(event["samples"])
            else:
                bar.update(event["samples"])

        if not is_launched(os.environ):
            return launch_inference(plan, processes=processes, hear=show)
        rank, world_size = refuse_processes(processes)
        ProcessGrid(spatial=plan.spatial, world_size=world_size)
        return infer_rank(plan, show if rank == 0 else lambda _: None)


def _show(result: InferenceResult, output: Path, *, console: Screen) -> None:
    """Print the figures, and where the files are."""
    if result.targets:
        console.print("Mean absolute error, of samples whose truth the catalogue has")
        console.print(_error_table(result))
    elif result.labelled:
        console.print(f"Dice, mean of {result.labelled} labelled samples")
        console.print(_dice_table(result))
    else:
        console.print("No labels, and so no Dice.")
    files = " and ".join(result.files)
    console.print(f"{result.samples} samples in {result.seconds:.1f} s; {files} are in {output}/.", soft_wrap=True)


def _error_table(result: InferenceResult) -> Table:
    """Return the error of each target, where the truth is known."""
    table = _table("target", "MAE", "samples")
    for target, mae, known in zip(result.targets, result.mae, result.known, strict=True):
        table.add_row(target, "unknown" if mae is None else f"{mae:.4f}", str(known))
    return table


def _dice_table(result: InferenceResult) -> Table:
    """Return the mean Dice of each foreground class, and of all."""
    table = _table("class", "Dice")
    for name, dice in zip(result.classes, result.dice, strict=True):
        table.add_row(str(name), f"{dice:.4f}")
    table.add_section()
    table.add_row("mean", f"{result.mean_dice:.4f}")
    return table


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(columns):
        table.add_column(name, justify="right" if place else "left", no_wrap=True)
    return table
