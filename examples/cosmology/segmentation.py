"""Segmentation: a U-Net finds structures in volumes that four ranks share, as well as in one process.

python examples/cosmology/segmentation.py --output segmentation-report

Makes labelled universes, trains the same plan with each volume cut into 2 x 2 x 1 blocks and in one process, prints the
Dice of held-out volumes beside that of who has learnt nothing, and draws a slice. Takes minutes on two cores.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from time import perf_counter

import torch

import voxload
from voxload.catalog import Catalog
from voxload.demo.structures import CLASSES, DENSITY, LABELS, make_structures
from voxload.models import UNet3D
from voxload.training.checkpoint import Checkpoint
from voxload.training.data import split_samples
from voxload.training.plan import UNET3D, Optimisation, TrainingPlan
from voxload.training.plots import draw_classes, draw_learning
from voxload.training.result import TrainingResult
from voxload.training.worker import launch

GRIDS = {"four ranks share each volume": ((2, 2, 1), 4), "one process": ((1, 1, 1), 1)}
"""Blocks and processes of each run."""
WIDTHS = (8, 16, 32)
"""Channels of a network that learns on two cores."""


def train(plan: TrainingPlan, *, processes: int, name: str) -> TrainingResult:
    """Train on local processes, and say how it goes."""
    start = perf_counter()
    result = launch(
        plan, processes=processes, on_epoch=lambda epoch: print(f"{name}: {line(epoch['validation_dice'])}")
    )
    print(f"{name}: {perf_counter() - start:.0f} s")
    draw_learning(result, Path(plan.output) / "learning.png")
    return result


def line(dices: list[float] | tuple[float, ...]) -> str:
    """Return the Dice of small and large structures, and their mean, as text."""
    small, large = dices
    return f"Dice of small structures {small:.3f}, of large ones {large:.3f}, mean {fmean(dices):.3f}"


def draw(plan: TrainingPlan, path: Path, *, title: str) -> None:
    """Draw the middle of a held-out volume, its labels, and what the trained network says, in one process."""
    trained = Checkpoint.read(Path(plan.output))
    network = UNet3D(1, CLASSES, widths=plan.widths)
    network.load_state_dict(trained.learner["network"])
    network.eval()
    listed = Catalog.read(plan.catalog)
    held_out = split_samples(listed.samples, fraction=plan.validation, seed=plan.optimisation.seed).validation
    data = voxload.VolumeDataset(listed.select(held_out), fields={"x": DENSITY, "labels": LABELS})
    volume, labels = data[0]
    data.close()
    with torch.no_grad():
        found = network(trained.moments.transform(volume[None])).argmax(1)
    middle = volume.shape[1] // 2
    maps = {"labels": labels[0, middle].numpy(), "network": found[0, middle].numpy()}
    draw_classes(volume[0, middle].numpy(), maps, path, title=title)


def main() -> None:
    """Make the data, train on both grids, compare and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=96)
    parser.add_argument("--size", type=int, default=32, help="voxels along each axis, a multiple of 4")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--folder", type=Path, default=Path("segmentation-data"))
    parser.add_argument("--output", type=Path, default=Path("segmentation-report"))
    arguments = parser.parse_args()
    catalog = make_structures(arguments.folder, count=arguments.samples, size=arguments.size, seed=0)
    plan = TrainingPlan(
        os.fspath(catalog),
        "",
        model=UNET3D,
        labels=LABELS,
        classes=CLASSES,
        widths=WIDTHS,
        optimisation=Optimisation(arguments.epochs, batch_size=2, learning_rate=1e-2, dropout=0.0),
    )
    results = {}
    for name, (spatial, processes) in GRIDS.items():
        output = arguments.output / name.replace(" ", "-")
        named = replace(plan, output=os.fspath(output), spatial=spatial)
        results[name] = train(named, processes=processes, name=name)
        draw(named, output / "slice.png", title=f"A held-out universe, after training where {name}")
    for name, result in results.items():
        print(f"{name}: {line(result.epochs[-1].validation_dice)}")
        baseline = result.dice_baseline
    if baseline is not None:
        print(f"by chance, as often as they are there: {line(baseline.chance_dice)}")
        print(f"said of every voxel: {line(baseline.everywhere_dice)}")
    print(f"Weights, results and pictures are in {arguments.output}/.")


if __name__ == "__main__":
    main()
