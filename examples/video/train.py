"""Recognise motions in clips: the ranks read clips of their own out of tar shards, and train one network.

torchrun --standalone --nproc-per-node 2 examples/video/train.py clips

Threads decode clips ahead of the loop. The cache keeps them decoded, so that later epochs decode none; a clip that
another rank has is taken from there.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import voxload
from voxload.transforms import Scale

MOTIONS = ("falls", "rises", "swings", "rolls")
"""In the order of their classes."""
SHOWN = (0, 3, 6, 9, 12, 15)
"""Frames of a clip in the picture."""
RATE = 25
"""Frames a second."""


def network() -> nn.Module:
    """Return a small network over (time, height, width); time keeps its extent until it has been looked at."""
    layers: list[nn.Module] = []
    for before, after, stride in ((3, 8, (1, 2, 2)), (8, 16, (2, 2, 2)), (16, 32, (2, 2, 2))):
        layers += [nn.Conv3d(before, after, 3, stride, padding=1), nn.BatchNorm3d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveMaxPool3d(1), nn.Flatten(), nn.Linear(32, len(MOTIONS)))


def train(model: nn.Module, loader: voxload.DataLoader, epochs: int) -> Iterator[tuple[float, int]]:
    """Train, and yield each epoch's mean loss, and how many clips all ranks decoded so far."""
    optimiser = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-2, total_steps=epochs * len(loader))
    for _ in range(epochs):
        sums = torch.zeros(2, dtype=torch.float64)
        for clips, motions in loader:
            loss = nn.functional.cross_entropy(model(clips), motions[:, 0].long())
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call] # torch's
            optimiser.step()
            schedule.step()
            sums[0] += loss.item()
        sums[1] = loader.stats().sources["storage"].fetches
        dist.all_reduce(sums)
        yield float(sums[0]) / len(loader) / dist.get_world_size(), int(sums[1])


@torch.no_grad()
def judge(
    model: nn.Module, data: voxload.VolumeDataset, transform: Scale
) -> tuple[Tensor, dict[int, tuple[Tensor, int]]]:
    """Return how often a motion is taken for each, (true, said), and the first clip of each with what is said of it."""
    model.eval()
    counts, first = torch.zeros(len(MOTIONS), len(MOTIONS), dtype=torch.int64), dict[int, tuple[Tensor, int]]()
    for clip, motion in voxload.DataLoader(data, batch_size=1, transform=transform):
        true, said = int(motion), int(model(clip).argmax())
        counts[true, said] += 1
        first.setdefault(true, (clip[0], said))
    return counts, first


def draw(counts: Tensor, first: dict[int, tuple[Tensor, int]], path: Path) -> None:
    """Draw frames of a clip of each motion, and which motions are taken for which."""
    figure = Figure(figsize=(12.5, 4.6), layout="constrained")
    parts: Any = figure.subfigures(1, 2, width_ratios=(2.1, 1))
    strips, table = parts
    rows = strips.subplots(len(MOTIONS), len(SHOWN))
    for row, (true, (clip, said)) in zip(rows, sorted(first.items()), strict=True):
        for axes, frame in zip(row, SHOWN, strict=True):
            axes.imshow(clip[:, frame].movedim(0, -1).clip(0, 1))
            axes.set(xticks=[], yticks=[])
            if true == 0:
                axes.set_title(f"{frame / RATE:.2f} s", fontsize=9)
        row[0].set_ylabel(f"{MOTIONS[true]},\nsaid: {MOTIONS[said]}", fontsize=9)
    axes = table.subplots()
    image = axes.imshow(counts, cmap="Blues", vmin=0, vmax=int(counts.sum(1).max()))
    for true in range(len(MOTIONS)):
        for said in range(len(MOTIONS)):
            dark = counts[true, said] > counts.max() / 2
            axes.text(said, true, int(counts[true, said]), ha="center", va="center", color="white" if dark else "black")
    axes.set(xticks=range(len(MOTIONS)), yticks=range(len(MOTIONS)), xlabel="what the network says", ylabel="motion")
    axes.set_xticklabels(MOTIONS)
    axes.set_yticklabels(MOTIONS)
    table.colorbar(image, ax=axes, label="clips", shrink=0.8)
    figure.suptitle(f"{int(counts.trace())} of {int(counts.sum())} held-out clips are recognised by their motion")
    figure.savefig(path, dpi=120)


def main() -> None:
    """Train on one catalogue of clips, and judge by another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clips", type=Path, help="folder with train.parquet and test.parquet")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--memory", default="256MiB", help="of this node, for decoded clips")
    parser.add_argument("--picture", type=Path, default=Path("video.png"))
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    grid = voxload.ProcessGrid.from_env()
    words: dict[str, Any] = {"targets": "cls"}
    training = voxload.VolumeDataset(arguments.clips / "train.parquet", grid=grid, **words)
    transform = Scale(1 / 255)
    cache = voxload.Cache(memory=arguments.memory)
    loader = voxload.DataLoader(training, batch_size=4, shuffle=True, transform=transform, cache=cache)
    trained = network()
    for epoch, (loss, decoded) in enumerate(train(DistributedDataParallel(trained), loader, arguments.epochs)):
        if grid.rank == 0:
            print(f"epoch {epoch}, loss {loss:.4f}; {decoded} clips decoded so far", flush=True)
    loader.close()
    if grid.rank == 0:
        counts, first = judge(trained, voxload.VolumeDataset(arguments.clips / "test.parquet", **words), transform)
        draw(counts, first, arguments.picture)
        print(f"{int(counts.trace())} of {int(counts.sum())} held-out clips are recognised")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
