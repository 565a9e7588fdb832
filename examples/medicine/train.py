"""Segment kidneys and tumours: learn from patches around them, then predict held-out scans whole, over all ranks.

torchrun --standalone --nproc-per-node 2 examples/medicine/train.py samples

While it learns, each rank has patches of its own. To judge, the ranks share each scan, cut along h, and the network
runs across the cut: the result is that of one process on the whole scan, without tiles or seams.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import voxload
from voxload.augment import Augment, ClassCentres, Flips
from voxload.engine.losses import DiceLoss
from voxload.models import UNet3D
from voxload.transforms import Clip, Compose, Scale

CLASSES = ("background", "kidney", "tumour")
FIELDS = {"scan": "image", "label": "label"}
WINDOW = Compose(Clip(-200, 400), Scale(1 / 200))
"""Hounsfield units that tell soft tissue apart, brought to small numbers."""
COLOURS = ("", "tab:cyan", "tab:red")


def train(model: nn.Module, data: voxload.VolumeDataset, grid: voxload.ProcessGrid, epochs: int) -> Iterator[float]:
    """Train, and yield each epoch's mean loss over this rank's patches."""
    loader = voxload.DataLoader(data, batch_size=2, shuffle=True, transform={"scan": WINDOW})
    cross_entropy, dice = nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 3.0])), DiceLoss(grid, background=False)
    optimiser = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-2, total_steps=epochs * len(loader))
    for _ in range(epochs):
        total = torch.zeros(())
        for scan, label in loader:
            logits, classes = model(scan), label[:, 0].long()
            loss = cross_entropy(logits, classes) + dice(logits, classes)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            total += loss.detach()
        dist.all_reduce(total)
        yield total.item() / len(loader) / grid.world_size


@torch.no_grad()
def predict(network: nn.Module, data: voxload.VolumeDataset, grid: voxload.ProcessGrid) -> Iterator[list[NDArray[Any]]]:
    """Yield each scan, its labels and what the network says of it, whole: (D, H, W)."""
    shared = voxload.engine.shard(copy.deepcopy(network), grid).eval()
    for scan, label, _ in voxload.DataLoader(data, batch_size=1):  # scans differ in their slices
        said = shared(WINDOW(scan)).argmax(1, keepdim=True)
        blocks: list[Any] = [None] * grid.world_size
        dist.all_gather_object(blocks, [each[0, 0].numpy() for each in (scan, label, said)])
        yield [np.concatenate(parts, axis=1) for parts in zip(*blocks, strict=True)]


def dices(found: list[list[NDArray[Any]]]) -> list[float]:
    """Return the Dice of each class but the background, over all scans."""
    pairs = [(label, said) for _, label, said in found]
    return [
        2
        * sum(int(((label == number) & (said == number)).sum()) for label, said in pairs)
        / sum(int((label == number).sum() + (said == number).sum()) for label, said in pairs)
        for number in range(1, len(CLASSES))
    ]


def draw(found: list[NDArray[Any]], spacing: list[float], title: str, path: Path) -> None:
    """Draw an axial and a coronal slice through the tumour with outlines of truth and prediction, in millimetres."""
    scan, label, said = found
    middle = [round(float(places.mean())) for places in np.nonzero(label == 2)]
    figure = Figure(figsize=(10, 4.6), layout="constrained")
    views: dict[str, tuple[Any, int, int]] = {"axial": (middle[0], 1, 2), "coronal": ((slice(None), middle[1]), 0, 2)}
    panels = figure.subplots(1, 2, width_ratios=(1, 1))
    for axes, (name, (place, rows, columns)) in zip(panels, views.items(), strict=True):
        heights, widths = (np.arange(scan.shape[axis]) * spacing[axis] for axis in (rows, columns))
        image = axes.pcolormesh(widths, heights, scan[place], cmap="gray", vmin=-200, vmax=400, rasterized=True)
        for number in range(1, len(CLASSES)):
            for volume, style in ((label, "solid"), (said, "dotted")):
                inside = (volume[place] == number).astype(float)
                axes.contour(widths, heights, inside, levels=[0.5], colors=COLOURS[number], linestyles=style)
        axes.set(title=f"{name} slice", xlabel="right to left (mm)", aspect="equal")
        axes.set_ylabel("front to back (mm)" if rows == 1 else "foot to head (mm)")
    panels[0].invert_yaxis()
    for number in range(1, len(CLASSES)):
        for style, what in (("solid", "truth"), ("dotted", "network")):
            panels[1].plot([], [], color=COLOURS[number], linestyle=style, label=f"{CLASSES[number]}, {what}")
    panels[1].legend(loc="upper center", bbox_to_anchor=(0.5, -0.25), ncols=2, frameon=False)
    figure.colorbar(image, ax=panels, label="Hounsfield units", shrink=0.8)
    figure.suptitle(title)
    figure.savefig(path, dpi=120)


def main() -> None:
    """Train on patches of one part of the scans, and predict those of another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples", type=Path, help="folder with train.parquet and test.parquet")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--picture", type=Path, default=Path("medicine.png"))
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    apart, together = (voxload.ProcessGrid.from_env(spatial) for spatial in ((1, 1, 1), (1, 2, 1)))
    patches = voxload.Patches(
        (12, 32, 32), per_sample=8, centres=ClassCentres("label", classes=[0, 1, 2], weights=[2, 1, 1])
    )
    training = voxload.VolumeDataset(
        arguments.samples / "train.parquet", fields=FIELDS, grid=apart, patches=patches, augment=Augment(Flips("HW"))
    )
    network = UNet3D(1, len(CLASSES), variant="lbann", widths=(8, 16, 32))
    for epoch, loss in enumerate(train(DistributedDataParallel(network), training, apart, arguments.epochs)):
        if apart.rank == 0:
            print(f"epoch {epoch}, loss {loss:.3f}", flush=True)
    held_out = voxload.VolumeDataset(
        arguments.samples / "test.parquet", fields=FIELDS, grid=together, columns=["spacing"]
    )
    found = list(predict(network, held_out, together))
    if apart.rank == 0:
        told = ", ".join(f"{name} {dice:.2f}" for name, dice in zip(CLASSES[1:], dices(found), strict=True))
        draw(found[0], held_out[0][2].tolist(), f"Held-out scan; Dice of all {len(found)}: {told}", arguments.picture)
        print(f"Dice of {len(found)} held-out scans: {told}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
