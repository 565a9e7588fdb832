"""A training run seen from the terminal: progress while it runs, tables and pictures when it has ended."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from voxload.cli.terminal import count_bar
from voxload.files.pictures import missing_for_drawing
from voxload.grid import ProcessGrid, is_launched
from voxload.launch.processes import refuse_processes
from voxload.prefetch.meter import Traffic
from voxload.training.plan import TrainingPlan
from voxload.training.plots import draw_learning, draw_timeline
from voxload.training.population.genealogy import draw_genealogy
from voxload.training.population.jobs import launch_population, written_population
from voxload.training.result import DiceBaseline, Epoch, TrainingResult
from voxload.training.worker import launch, train_rank
from voxload.units import format_bytes

LEARNING, TIMELINE, GENEALOGY = "learning.png", "stall.png", "genealogy.png"
"""File names of the pictures in the output folder."""


def train_with_progress(plan: TrainingPlan, *, processes: int, label: str) -> TrainingResult:
    """Run `plan` on local processes behind a progress bar; the bar shows only on a terminal."""
    with _epoch_bar(plan, label) as show:
        return launch(plan, processes=processes, on_epoch=show)


def train_as_rank(plan: TrainingPlan, *, processes: int, label: str) -> TrainingResult | None:
    """Run `plan` as the rank that a launcher made of this process, or on local processes where there is no launcher.

    Returns None on other ranks than the first, which alone shows progress.
    """
    if not is_launched(os.environ):
        return train_with_progress(plan, processes=processes, label=label)
    _, world_size = refuse_processes(processes)
    ProcessGrid(spatial=plan.spatial, world_size=world_size)
    with _epoch_bar(plan, label) as show:
        return train_rank(plan, show)


def train_population(plan: TrainingPlan, *, processes: int) -> TrainingResult | None:
    """Run a plan of several trainers; return the best one's result, None on other ranks than the first."""
    with count_bar("training", total=plan.optimisation.epochs * plan.trainers, unit="epoch") as bar:

        def show(trainer: int, event: dict[str, Any]) -> None:
            if event["event"] == "epoch":
                bar.set_postfix(trainer=trainer, held_out=f"{event['validation_loss']:.4f}")
                bar.update(1)

        if not is_launched(os.environ):
            population = launch_population(plan, processes=processes, on_event=show)
            return population.write(plan.output)
        refuse_processes(processes)
        return train_rank(plan, lambda event: show(0, event))


def report_population(plan: TrainingPlan, *, console: Console) -> None:
    """Print what trainers decided in the rounds of their tournament, and draw it into the output folder."""
    population = written_population(plan.output, plan.trainers)
    table = _table("Trainers", ("trainer", "held-out\nloss", "rounds", "adopted", "forfeits", ""))
    for trainer in range(plan.trainers):
        result = population.results.get(trainer)
        if result is None:
            table.add_row(str(trainer), "", "", "", "", population.lost[trainer])
            continue
        verdicts = result.verdicts
        counts = (len(verdicts), sum(one.is_adopted for one in verdicts), sum(one.is_forfeit for one in verdicts))
        is_best = "best" if trainer == population.best else ""
        table.add_row(str(trainer), f"{result.epochs[-1].validation_loss:.4f}", *map(str, counts), is_best)
    console.print(table)
    if not missing_for_drawing("pictures"):
        draw_genealogy(population.results, Path(plan.output) / GENEALOGY)


def report(result: TrainingResult, folder: Path, *, console: Console) -> str:
    """Print the tables of `result` and draw its pictures into `folder`; return what these lack, or nothing."""
    if any(rank.steps for rank in result.ranks):
        console.print(rank_table(result))
    else:
        console.print(f"Nothing was left to do: all {len(result.epochs)} epochs were behind.")
    if result.policy is not None:
        console.print(source_table(result))
    console.print(epoch_table(result))
    lack = missing_for_drawing("no pictures")
    if not lack:
        draw_learning(result, folder / LEARNING)
        draw_timeline(result, folder / TIMELINE)
    return lack


@contextmanager
def _epoch_bar(plan: TrainingPlan, label: str) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Yield what shows a run's events in a bar of epochs."""
    with count_bar(label, total=plan.optimisation.epochs, unit="epoch") as bar:

        def show(event: dict[str, Any]) -> None:
            if event["event"] != "epoch":
                return
            bar.set_postfix(loss=f"{event['training_loss']:.4f}", held_out=f"{event['validation_loss']:.4f}")
            bar.update(event["number"] - bar.n)  # a resumed run does not begin with the first

        yield show


def rank_table(result: TrainingResult) -> Table:
    """Return what each rank's loader delivered, read and waited for."""
    names = ("rank", "group", "block", "needed", "read", "read/\nneeded", "decoded/\nneeded", "stall", "AU")
    table = _table("Loading, per rank, over all epochs", names)
    for rank in result.ranks:
        table.add_row(
            str(rank.rank),
            str(rank.group),
            ",".join(map(str, rank.coords)),
            format_bytes(rank.bytes_needed),
            format_bytes(rank.bytes_read),
            f"{rank.read_amplification:.3f}",
            f"{rank.decode_amplification:.3f}",
            _seconds(rank.seconds_stalled, 2),
            f"{rank.accelerator_utilisation:.1%}",
        )
    return table


def source_table(result: TrainingResult) -> Table:
    """Return where each rank's blocks came from, how fast, and how long that was predicted to take."""
    names = ("rank", "source", "hits", "misses", "bytes", "bytes/s of\none fetch", "predicted*", "actual")
    table = _table("Where blocks came from, per rank, over all epochs", names)
    parts = [(str(rank.rank), rank.sources) for rank in result.ranks]
    kinds = dict.fromkeys(kind for _, sources in parts for kind in sources)
    if len(parts) > 1:
        parts.append(("all", {kind: _sum(rank.sources[kind] for rank in result.ranks) for kind in kinds}))
    for label, sources in parts:
        used = [(kind, found) for kind, found in sources.items() if found.fetches or found.misses]
        for place, (kind, found) in enumerate(used):
            table.add_row(
                label if place == 0 else "",
                kind,
                str(found.fetches),
                str(found.misses),
                format_bytes(found.nbytes),
                f"{format_bytes(round(found.bandwidth))}/s" if found.fetches else "",
                _seconds(found.predicted, 3) if found.foreseen else "",
                _seconds(found.foreseen, 3) if found.foreseen else "",
                end_section=place == len(used) - 1,
            )
    orders = "used" if result.is_clairvoyant else "not used"
    table.caption = (
        f"Policy {result.policy}; orders beyond the epoch at hand were {orders}. * Time of the fetches, summed over "
        "those side by side, as the cost model said before they began, and as it was: of those it knew of."
    )
    table.caption_justify = "left"
    return table


def epoch_table(result: TrainingResult) -> Table:
    """Return loss and held-out figures of each epoch, with those of who has learnt nothing below."""
    if result.dice_baseline is not None:
        return _dice_table(result, result.dice_baseline)
    table = _learning_table("MAE is of held-out samples", [f"MAE of\n{name}" for name in result.targets])
    for number, epoch in enumerate(result.epochs, 1):
        _add_epoch(table, number, epoch, [f"{mae:.4f}" for mae in epoch.validation_mae])
    table.add_section()
    table.add_row("mean*", "", "", *(f"{mae:.4f}" for mae in result.mean_predictor_mae), "", "")
    table.add_row("ratio", "", "", *(f"{ratio:.3f}" for ratio in result.mae_ratio), "", "")
    table.caption = "* predicting the training samples' mean; ratio: last epoch's MAE over it"
    return table


def _dice_table(result: TrainingResult, baseline: DiceBaseline) -> Table:
    """Return the same of a segmentation."""
    classes = [f"Dice of\nclass {name}" for name in baseline.classes]
    table = _learning_table("Dice is of held-out samples", [*classes, "mean\nDice"])
    for number, epoch in enumerate(result.epochs, 1):
        _add_epoch(table, number, epoch, [f"{dice:.4f}" for dice in (*epoch.validation_dice, epoch.mean_dice)])
    table.add_section()
    for name, dices in (("chance*", baseline.chance_dice), ("all*", baseline.everywhere_dice)):
        table.add_row(name, "", "", *(f"{dice:.4f}" for dice in (*dices, fmean(dices))), "", "")
    table.caption = "* chance: a class at random, as often as it is there; all: that class everywhere"
    return table


def _learning_table(judged: str, columns: Sequence[str]) -> Table:
    """Return a table of epochs without rows."""
    table = _table(f"Learning, per epoch; {judged}", ("epoch", "loss", "held-out\nloss", *columns, "samples", "time"))
    table.caption_justify = "left"
    return table


def _add_epoch(table: Table, number: int, epoch: Epoch, figures: Sequence[str]) -> None:
    losses = (f"{epoch.training_loss:.4f}", f"{epoch.validation_loss:.4f}")
    table.add_row(str(number), *losses, *figures, str(epoch.samples or ""), f"{epoch.seconds:.1f} s")


def _seconds(value: float, decimals: int) -> str:
    """Return seconds; without decimals where they are many, so that columns stay narrow."""
    return f"{value:.{decimals if value < 1000 else 0}f} s"


def _sum(parts: Iterable[Traffic]) -> Traffic:
    return Traffic(*map(sum, zip(*map(astuple, parts), strict=True)))


def _table(title: str, columns: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table
