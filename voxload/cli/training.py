"""A training run seen from the terminal: progress while it runs, tables and pictures when it has ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from voxload.cli.progress import count_bar
from voxload.cli.tables import epoch_table, rank_table, source_table
from voxload.plots import draw_learning, draw_timeline
from voxload.training.launch import launch
from voxload.training.plan import TrainingPlan
from voxload.training.result import TrainingResult

LEARNING, TIMELINE = "learning.png", "stall.png"
"""File names of the pictures in the output folder."""


def train_with_progress(plan: TrainingPlan, *, processes: int, label: str) -> TrainingResult:
    """Run `plan` on local processes behind a progress bar; the bar shows only on a terminal."""
    with count_bar(label, total=plan.optimisation.epochs, unit="epoch") as bar:

        def show(epoch: dict[str, Any]) -> None:
            bar.set_postfix(loss=f"{epoch['training_loss']:.4f}", held_out=f"{epoch['validation_loss']:.4f}")
            bar.update(epoch["number"] - bar.n)  # a resumed run does not begin with the first

        return launch(plan, processes=processes, on_epoch=show)


def report(result: TrainingResult, folder: Path, *, console: Console) -> None:
    """Print the tables of `result` and draw its pictures into `folder`."""
    console.print(rank_table(result))
    if result.policy is not None:
        console.print(source_table(result))
    console.print(epoch_table(result))
    draw_learning(result, folder / LEARNING)
    draw_timeline(result, folder / TIMELINE)
