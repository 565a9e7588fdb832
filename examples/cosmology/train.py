"""Learn cosmological parameters from whole universes; the ranks share each universe, cut along d.

torchrun --standalone --nproc-per-node 2 examples/cosmology/train.py universes

The network runs over both halves at once and gives what it gives on a whole cube: halos travel between the ranks.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import voxload
from voxload.transforms import Compose, Log1p, standardize_by

TARGETS = {"omega_m": r"$\Omega_m$", "sigma_8": r"$\sigma_8$"}
"""Columns of the catalogue, and their names in the picture."""
LOW, HIGH = torch.tensor([0.1, 0.6]), torch.tensor([0.5, 1.0])
"""Ranges that the simulations were drawn from, which are learnt as -1 to 1."""
MIDDLE, HALF = (HIGH + LOW) / 2, (HIGH - LOW) / 2
SIZE = 32
"""Voxels along each axis of a universe."""


def network() -> nn.Module:
    """Return a small network for periodic cubes; `voxload.models.CosmoFlow` is the field's, for cubes up to 512^3."""
    layers: list[nn.Module] = []
    for before, after in ((1, 8), (8, 16), (16, 32)):
        conv = nn.Conv3d(before, after, 3, padding=1, padding_mode="circular")
        layers += [conv, nn.BatchNorm3d(after), nn.LeakyReLU(0.1), nn.AvgPool3d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(32, len(TARGETS)))


def train(model: nn.Module, loader: voxload.DataLoader, epochs: int) -> Iterator[float]:
    """Train, and yield each epoch's mean loss."""
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-2, total_steps=epochs * len(loader))
    for _ in range(epochs):
        model.train()
        total = 0.0
        for universe, targets in loader:
            loss = nn.functional.mse_loss(model(universe), (targets.float() - MIDDLE) / HALF)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call] # torch's
            optimiser.step()
            schedule.step()
            total += loss.item()
        yield total / len(loader)


@torch.no_grad()
def predict(model: nn.Module, loader: voxload.DataLoader) -> tuple[Tensor, Tensor]:
    """Return what the network says of each universe, and the truth: (universes, targets) each."""
    model.eval()
    pairs = [(model(universe) * HALF + MIDDLE, targets.float()) for universe, targets in loader]
    said, true = zip(*pairs, strict=True)
    return torch.cat(said), torch.cat(true)


def errors(said: Tensor, true: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean absolute error of each target, and that of who says the middle of its range."""
    return (said - true).abs().mean(0), (MIDDLE - true).abs().mean(0)


def draw(said: Tensor, true: Tensor, path: Path) -> None:
    """Draw predicted over true values, a panel for each parameter."""
    figure = Figure(figsize=(8.4, 4.4), layout="constrained")
    for place, (axes, name) in enumerate(zip(figure.subplots(1, len(TARGETS)), TARGETS.values(), strict=True)):
        low, high = float(true[:, place].min()), float(true[:, place].max())
        axes.plot([low, high], [low, high], color="0.6", label="predicted = true")
        axes.scatter(true[:, place], said[:, place], s=22, color="tab:blue", label="held-out universe")
        axes.set(xlabel=f"true {name}", ylabel=f"predicted {name}", aspect="equal", adjustable="datalim")
        error, guess = errors(said, true)
        axes.set_title(f"{name}: mean error {error[place]:.3f}, by guessing {guess[place]:.3f}")
        axes.legend(frameon=False)
    figure.suptitle(f"Parameters of {len(true)} held-out universes, by a network that two ranks share")
    figure.savefig(path, dpi=120)


def main() -> None:
    """Train on one part of the universes, and judge by another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("universes", type=Path, help="folder with train.parquet and test.parquet")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--picture", type=Path, default=Path("cosmology.png"))
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    grid = voxload.ProcessGrid.from_env(spatial=(2, 1, 1))
    catalogs = [arguments.universes / f"{part}.parquet" for part in ("train", "test")]
    training, held_out = (voxload.VolumeDataset(path, targets=list(TARGETS), grid=grid) for path in catalogs)
    transform = Compose(Log1p(), standardize_by(catalogs[0]))
    loader = voxload.DataLoader(training, batch_size=8, shuffle=True, transform=transform)
    model = DistributedDataParallel(voxload.engine.shard(network(), grid, shape=(SIZE,) * 3))  # splits it
    for epoch, loss in enumerate(train(model, loader, arguments.epochs)):
        if grid.rank == 0:
            print(f"epoch {epoch}, loss {loss:.4f}", flush=True)
    said, true = predict(model, voxload.DataLoader(held_out, batch_size=4, transform=transform))
    if grid.rank == 0:
        draw(said, true, arguments.picture)
        for name, error, guess in zip(TARGETS, *errors(said, true), strict=True):
            print(f"{name}: mean error of {len(true)} held-out universes {error:.3f}, by guessing {guess:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
