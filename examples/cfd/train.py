"""Learn the pressure of a flow from its velocity: each rank reads half of a snapshot, and the halo that it needs.

torchrun --standalone --nproc-per-node 2 examples/cfd/train.py samples

The network looks six cells far and has no padding, so a block with a halo of six cells is all that a rank needs. No
rank sends another one voxels. The halo goes on at the box's other side, as the flow does.
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

HALO = 6
"""Cells that the convolutions below take off at each side."""


class PressureNetwork(nn.Module):
    """Pressure follows linearly from products of velocity components, by the Poisson equation: learn how."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv3d(6, 12, 3), nn.Conv3d(12, 12, 3, dilation=2), nn.Conv3d(12, 1, 3, dilation=3)
        )

    def forward(self, velocity: Tensor) -> Tensor:
        """Return the pressure, (B, 1, d, h, w), of blocks with their halo, (B, 3, d + 12, h + 12, w + 12)."""
        u, v, w = velocity.unbind(1)
        pressure: Tensor = self.convolutions(torch.stack([u * u, v * v, w * w, u * v, u * w, v * w], 1))
        return pressure


def own(field: Tensor) -> Tensor:
    """Return a block without its halo."""
    inside = slice(HALO, -HALO)
    return field[..., inside, inside, inside]


def train(model: nn.Module, data: voxload.VolumeDataset, epochs: int) -> Iterator[float]:
    """Train, and yield each epoch's mean loss, over that of saying that the pressure is the same everywhere."""
    loader = voxload.DataLoader(data, batch_size=2, shuffle=True)
    optimiser = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-2, total_steps=epochs * len(loader))
    for _ in range(epochs):
        sums = torch.zeros(2)
        for velocity, pressure in loader:
            loss = nn.functional.mse_loss(model(velocity), own(pressure))
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call] # torch's
            optimiser.step()
            schedule.step()
            sums += torch.stack([loss.detach(), own(pressure).square().mean()])
        dist.all_reduce(sums)  # blocks are of one size
        yield float(sums[0] / sums[1])


@torch.no_grad()
def predict(model: nn.Module, data: voxload.VolumeDataset, grid: voxload.ProcessGrid) -> tuple[Tensor, Tensor]:
    """Return predicted and true pressure of all snapshots, whole: (snapshots, D, H, W) each."""
    pairs = [torch.stack([model(velocity), own(pressure)]) for velocity, pressure in voxload.DataLoader(data)]
    blocks: list[Any] = [None] * grid.world_size
    dist.all_gather_object(blocks, torch.cat(pairs, 1)[:, :, 0])
    said, true = torch.cat(blocks, 2)
    return said, true


def draw(said: Tensor, true: Tensor, title: str, path: Path) -> None:
    """Draw a plane of the last snapshot that crosses both blocks, on one scale of colours."""
    middle = true.shape[2] // 2
    planes = [each[-1, :, middle].numpy() for each in (true, said, said - true)]
    limit = float(abs(planes[0]).max())
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    for axes, plane, name in zip(panels, planes, ("solver", "network", "network less solver"), strict=True):
        image = axes.imshow(plane, origin="lower", cmap="RdBu_r", vmin=-limit, vmax=limit)
        axes.axhline(true.shape[1] / 2 - 0.5, color="black", linewidth=0.8, linestyle="dashed")
        axes.set(title=name, xlabel="w (cells)")
    panels[0].set_ylabel("d (cells); dashed: where the ranks' blocks meet")
    figure.colorbar(image, ax=panels, label=r"pressure / (density $U^2$), $U$: first rms velocity", shrink=0.85)
    figure.suptitle(title)
    figure.savefig(path, dpi=120)


def main() -> None:
    """Train on all runs but the last one, and judge by that."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples", help="a catalogue or its folder")
    parser.add_argument("--held-out", default="run5", help="first sample that is not trained on")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--picture", type=Path, default=Path("cfd.png"))
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    grid = voxload.ProcessGrid.from_env(spatial=(2, 1, 1))
    fields = {"velocity": "velocity", "pressure": "p"}
    data = voxload.VolumeDataset(arguments.samples, fields=fields, grid=grid, halo=HALO, boundary="periodic")
    # Snapshots of one run are alike: a whole run is held out.
    training = data.subset(where=f'sample < "{arguments.held_out}"')
    held_out = data.subset(where=f'sample >= "{arguments.held_out}"')
    model = DistributedDataParallel(PressureNetwork())
    for epoch, loss in enumerate(train(model, training, arguments.epochs)):
        if grid.rank == 0:
            print(f"epoch {epoch}, loss {loss:.4f}", flush=True)
    said, true = predict(model, held_out, grid)
    error = float((said - true).std() / true.std())
    if grid.rank == 0:
        told = f"Pressure of a held-out run, from its velocity: error {error:.2f} of its deviation"
        draw(said, true, told, arguments.picture)
        print(f"{len(true)} held-out snapshots: error {error:.2f} of the pressure's deviation")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
