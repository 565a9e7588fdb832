"""Genealogy: the picture of a tournament, of which model came from where, and how they did."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from voxload.files.pictures import blank, drawing, write_png
from voxload.training.result import TrainingResult

_GREY = "#8a8f98"


def ancestors(results: Mapping[int, TrainingResult]) -> dict[int, list[int]]:
    """Return, for each trainer, whose first model the one is that it has before each round, and at the end.

    A model is followed through the trainers that kept it. What was adopted of a trainer without a result is that one's
    own.
    """
    rounds = max((len(result.verdicts) for result in results.values()), default=0)
    found = {trainer: [trainer] for trainer in results}
    for number in range(rounds):
        before = {trainer: models[-1] for trainer, models in found.items()}
        for trainer, result in results.items():
            verdict = result.verdicts[number] if number < len(result.verdicts) else None
            is_adopted = verdict is not None and verdict.is_adopted
            source = verdict.partner if verdict is not None and is_adopted else trainer
            found[trainer].append(before.get(source, source))
    return found


def draw_genealogy(results: Mapping[int, TrainingResult], path: Path) -> None:
    """Draw, round by round, whose model each trainer has; and its loss on its own contest, and on held-out samples."""
    figure = blank(11, 5.2)
    left, right = figure.subplots(1, 2)
    colours = drawing("matplotlib").colormaps["tab10"]
    models = ancestors(results)
    for trainer, result in sorted(results.items()):
        own = models[trainer]
        for number, model in enumerate(own):
            left.plot(
                [number, number + 1], [trainer, trainer], color=colours(model % 10), linewidth=5, solid_capstyle="butt"
            )
        for number, verdict in enumerate(result.verdicts, 1):
            if verdict.is_adopted:
                words = {"arrowstyle": "->", "color": _GREY, "linewidth": 1.2}
                left.annotate("", (number, trainer), (number, verdict.partner), arrowprops=words)
            if verdict.is_forfeit:
                left.plot([number], [trainer], marker="x", color="black", markersize=7)
        judged = [(each.number, each.own, each.other) for each in result.verdicts if each.own is not None]
        losses = [own if other is None else min(own, other) for _, own, other in judged]
        numbers = [number for number, *_ in judged]
        right.plot(numbers, losses, color=colours(trainer % 10), marker="o", markersize=3, label=f"trainer {trainer}")
    left.set(title="Whose model each trainer has (x: no other came)", xlabel="round", ylabel="trainer")
    left.set_yticks(sorted(results))
    right.set(title="Loss on each trainer's own contest", xlabel="round", ylabel="loss")
    right.legend(frameon=False)
    write_png(figure, path)
