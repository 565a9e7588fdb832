"""``voxload demo``: from raw universes to a trained network, every part real."""

from __future__ import annotations

import importlib
import os
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Annotated

import pyarrow as pa
import typer

from voxload.catalog.table import Catalog
from voxload.cli.network.report import LEARNING, TIMELINE, report, train_with_progress
from voxload.cli.options import check_folder
from voxload.cli.terminal import Screen, byte_bar, count_bar
from voxload.convert import ConvertOptions, Readers, convert
from voxload.data.lists.samples import location_of
from voxload.errors import InternalError, UsageError
from voxload.files.pictures import check_drawing
from voxload.geometry import Halo
from voxload.grid import ProcessGrid
from voxload.readers import open_reader, read_plane
from voxload.training.data import split_samples
from voxload.training.plan import Optimisation, TrainingPlan
from voxload.training.plots import draw_blocks
from voxload.training.result import TrainingResult

EPILOG = "Example: voxload demo --folder demo-data --output demo-report"
"""Shown at the end of the command's help."""

SPATIAL = (2, 1, 1)
"""Blocks of each universe."""
PROCESSES = 4
"""Ranks: two sample groups of two blocks."""
BLOCKS_PICTURE = "blocks.png"
"""File name of the universe with its block borders."""
UNIVERSES, EPOCHS = 448, 5
"""The recipe: enough for the network to learn, few enough for two cores."""
JUDGED = "sigma_8"
"""The parameter that universes of this size do constrain."""
LARGEST_RATIO, LEAST_CONTROL = 0.6, 0.9
"""Its held-out error over the mean predictor's: at most with true labels, above with shuffled ones."""


def demo(
    *,
    universes: Annotated[int, typer.Option(help="Universes to make.", min=16)] = UNIVERSES,
    size: Annotated[int, typer.Option(help="Cells along each axis: 32, 64, 128, ...")] = 32,
    epochs: Annotated[int, typer.Option(help="Passes over the training universes.")] = EPOCHS,
    seed: Annotated[int, typer.Option(help="Seed of the universes and of the training.", min=0)] = 0,
    shuffle: Annotated[
        bool, typer.Option("--shuffle-labels", help="Deal the training labels out anew: nothing can be learnt.")
    ] = False,
    folder: Annotated[Path, typer.Option(help="Folder for the universes, kept for the next time.")] = Path("demo-data"),
    output: Annotated[Path, typer.Option(help="Folder for weights, result and pictures.")] = Path("demo-report"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Make universes, convert them, train CosmoFlow on 4 processes as 2 groups x 2 blocks, and report.

    Ends with status 1 if the network, trained by the recipe, does not beat the mean predictor on sigma_8 of
    held-out universes, or if it does with shuffled labels.
    """
    check_folder("--folder", folder)
    check_folder("--output", output)
    console = Screen(stderr=as_json)
    raw, converted = folder / f"raw-{size}-{universes}-{seed}", folder / f"converted-{size}-{universes}-{seed}"
    start = perf_counter()
    _make(raw, count=universes, size=size, seed=seed)
    console.print(f"1. {universes} universes of {size}^3 x 4 in {raw}/: {perf_counter() - start:.1f} s")
    start = perf_counter()
    catalog = _convert(raw, converted)
    console.print(f"2. converted to sharded Zarr in {converted}/: {perf_counter() - start:.1f} s")
    plan = TrainingPlan(
        catalog=os.fspath(catalog),
        output=os.fspath(output),
        spatial=SPATIAL,
        optimisation=Optimisation(epochs=epochs, dropout=0.0, seed=seed),
    )
    if shuffle:
        plan = _shuffled(plan, catalog)
    start = perf_counter()
    result = train_with_progress(plan, processes=PROCESSES, label="3. training")
    console.print(f"3. trained {epochs} epochs on 2 groups x 2 blocks: {perf_counter() - start:.1f} s")
    report(result, output, console=console)
    _draw(catalog, output / BLOCKS_PICTURE)
    console.print(f"Pictures: {', '.join(str(output / name) for name in (BLOCKS_PICTURE, LEARNING, TIMELINE))}")
    if as_json:
        print(result.to_json())
    _judge(result, is_control=shuffle, console=console)


def _make(folder: Path, *, count: int, size: int, seed: int) -> None:
    """Make the universes that are not there yet; their libraries and what draws are an extra: raises UsageError."""
    try:
        universes = importlib.import_module("voxload.demo.universes")
    except ImportError as error:
        raise UsageError("demo", found=str(error), remedy='pip install "voxload[demo]"') from error
    check_drawing("demo")
    with count_bar("1. universes", total=count, unit="universe") as bar:
        universes.make_universes(folder, count=count, size=size, seed=seed, progress=bar.update)


def _convert(raw: Path, converted: Path) -> Path:
    with byte_bar("2. converting ") as show:
        readers = Readers(SPATIAL, Halo.parse(0))
        return convert(raw, converted, options=ConvertOptions(readers=readers), progress=show).catalog


def _shuffled(plan: TrainingPlan, catalog: Path) -> TrainingPlan:
    """Return the plan for a catalogue whose training labels are dealt out anew; held-out labels stay true."""
    true = Catalog.read(catalog)
    training = split_samples(true.samples, fraction=plan.validation, seed=plan.optimisation.seed).training
    path = catalog.with_name("catalog-shuffled.parquet")
    shuffled_labels(true, training, seed=plan.optimisation.seed).write(path)
    return replace(plan, catalog=os.fspath(path))


def _draw(catalog: Path, path: Path) -> None:
    """Draw the first universe with the borders of the blocks."""
    listed = Catalog.read(catalog)
    entry = listed.entry(listed.samples[0], listed.datasets[0])
    reader = open_reader(location_of(entry, listed.root))
    try:
        found = reader.describe()
        depth = found.spatial[2] // 2
        plane = read_plane(reader, 2, depth)
    finally:
        reader.close()
    grid = ProcessGrid(spatial=SPATIAL, world_size=PROCESSES, rank=0)
    draw_blocks(plane, path, grid=grid, shape=found.spatial, depth=depth)


def _judge(result: TrainingResult, *, is_control: bool, console: Screen) -> None:
    """Say whether the network learnt what the universes can teach; raises InternalError when the recipe failed.

    Fewer universes or epochs than the recipe's are reported, not judged.
    """
    ratio = dict(zip(result.targets, result.mae_ratio, strict=True))[JUDGED]
    text = f"held-out MAE of {JUDGED} is {ratio:.3f} of the mean predictor's"
    console.print(text + (", with labels shuffled" if is_control else ""))
    is_recipe = result.training_samples + result.validation_samples >= UNIVERSES and len(result.epochs) >= EPOCHS
    is_as_expected = ratio > LEAST_CONTROL if is_control else ratio <= LARGEST_RATIO
    if is_recipe and not is_as_expected:
        raise InternalError(
            "demo",
            found=text,
            expected=f"above {LEAST_CONTROL}" if is_control else f"at most {LARGEST_RATIO}",
            remedy="blocks, labels or gradients are wrong: please report it",
        )


def shuffled_labels(catalog: Catalog, samples: Sequence[str], *, seed: int) -> Catalog:
    """Return `catalog` with the targets of `samples` dealt out anew among them; all other rows are as they were.

    A network that still predicted held-out targets from such labels would be reading them from somewhere else.
    """
    dealt = list(samples)
    random.Random(seed).shuffle(dealt)  # noqa: S311 - a control needs no secrecy
    giver = dict(zip(samples, dealt, strict=True))
    names = catalog.table.column("sample").to_pylist()
    row_of = {name: row for row, name in enumerate(names)}
    rows = pa.array([row_of[giver.get(name, name)] for name in names])
    table = catalog.table
    for target in catalog.target_names:
        place = table.column_names.index(target)
        table = table.set_column(place, target, table.column(target).take(rows))
    return Catalog(table, catalog.root, allow_outside=catalog.allow_outside)
