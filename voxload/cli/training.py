"""A training run seen from the terminal: progress while it runs, tables and pictures when it has ended."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from voxload.cli.progress import count_bar
from voxload.cli.tables import epoch_table, rank_table, source_table
from voxload.grid import ProcessGrid, is_launched
from voxload.launching import refuse_processes
from voxload.plots import draw_learning, draw_timeline
from voxload.training.launch import launch
from voxload.training.plan import TrainingPlan
from voxload.training.result import TrainingResult
from voxload.training.worker import train_rank

LEARNING, TIMELINE = "learning.png", "stall.png"
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


def report(result: TrainingResult, folder: Path, *, console: Console) -> None:
    """Print the tables of `result` and draw its pictures into `folder`."""
    if any(rank.steps for rank in result.ranks):
        console.print(rank_table(result))
    else:
        console.print(f"Nothing was left to do: all {len(result.epochs)} epochs were behind.")
    if result.policy is not None:
        console.print(source_table(result))
    console.print(epoch_table(result))
    draw_learning(result, folder / LEARNING)
    draw_timeline(result, folder / TIMELINE)


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
