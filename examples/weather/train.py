"""Forecast temperature: a network that steps six hours ahead, rolled out for 36 hours; the ranks share the longitudes.

torchrun --standalone --nproc-per-node 2 examples/weather/train.py analysis.zarr

The store, a folder or a URL, is read as it is. Windows of steps overlap, and the cache keeps each step by itself: an
epoch reads a step from the store once, and later epochs read none. Winds cross between the ranks' longitudes.
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
from voxload.engine.losses import VoxelLoss

HOURS, LEVEL = 6, 2
"""Of a step; which level is drawn: 500 hPa."""
SEEN, LEARNT, JUDGED = 2, 2, 6
"""Steps that the network sees, that it rolls out while it learns, and that forecasts are judged by."""


class Stepper(nn.Module):
    """Gives the anomaly of the next step; longitudes close into a circle, and the place tells jet and poles apart."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in ((SEEN + 2, 16), (16, 16), (16, 1)):
            layers += [nn.CircularPad3d((1, 1, 0, 0, 0, 0)), nn.Conv3d(before, after, 3, padding=(1, 1, 0)), nn.GELU()]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, state: Tensor, place: Tensor) -> Tensor:
        """Return (B, 1, level, latitude, longitude) for the last steps as channels, and two channels of places."""
        change: Tensor = self.layers(torch.cat([state, place], 1))
        return state[:, -1:] + change


def rollout(model: nn.Module, state: Tensor, steps: int) -> Tensor:
    """Return the steps after (B, T, level, latitude, longitude), each from what was forecast before it."""
    along = [torch.linspace(-1, 1, extent) for extent in state.shape[2:4]]
    place = torch.stack(torch.meshgrid(*along, indexing="ij"))[None, ..., None].expand(len(state), 2, *state.shape[2:])
    found = []
    for _ in range(steps):
        found.append(model(state, place))
        state = torch.cat([state[:, 1:], found[-1]], 1)
    return torch.cat(found, 1)


def train(
    model: nn.Module, loader: voxload.DataLoader, climate: Tensor, loss_of: VoxelLoss, epochs: int
) -> Iterator[float]:
    """Train, and yield each epoch's mean loss, in K^2."""
    optimiser = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-2, total_steps=epochs * len(loader))
    for _ in range(epochs):
        total = 0.0
        for before, after in loader:
            loss = loss_of(rollout(model, before[:, :, 0] - climate, LEARNT), after[:, :, 0] - climate)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            total += loss.item()
        yield total / len(loader)


@torch.no_grad()
def forecast(model: nn.Module, data: voxload.VolumeDataset, climate: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return what was last seen, forecasts and truth, as anomalies: (windows, steps, level, latitude, longitude)."""
    parts = []
    for before, after in voxload.DataLoader(data, batch_size=4):
        state = before[:, :, 0] - climate
        parts.append((state[:, -1:], rollout(model, state, JUDGED), after[:, :, 0] - climate))
    world: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(world, [torch.cat(each) for each in zip(*parts, strict=True)])
    seen, said, true = (torch.cat(blocks, -1) for blocks in zip(*world, strict=True))
    return seen, said, true


def errors(said: Tensor, true: Tensor) -> Tensor:
    """Return the root mean square error by step, in K."""
    return (said - true).square().mean((0, 2, 3, 4)).sqrt()


def draw(seen: Tensor, said: Tensor, true: Tensor, path: Path) -> None:
    """Draw the last step of a forecast, and errors over lead time."""
    figure = Figure(figsize=(11, 6), layout="constrained")
    panels = figure.subplots(2, 2).ravel()
    analysis, ahead = true[0, -1, LEVEL], said[0, -1, LEVEL]
    maps = {"analysis": analysis, "forecast": ahead, "forecast less analysis": ahead - analysis}
    limit = float(analysis.abs().max())
    for axes, (name, field) in zip(panels, maps.items(), strict=False):
        image = axes.imshow(field, cmap="RdBu_r", vmin=-limit, vmax=limit, extent=(0, 360, -82.5, 82.5), aspect="auto")
        axes.set(title=f"{name}, {JUDGED * HOURS} h ahead", xlabel="degrees east", ylabel="degrees north")
    figure.colorbar(image, ax=panels[:3], label="anomaly at 500 hPa (K)")
    hours = range(HOURS, JUDGED * HOURS + 1, HOURS)
    rows = {"network": said, "persistence": seen, "climate": torch.zeros(())}
    for (name, field), style in zip(rows.items(), ("o-", "s--", ":"), strict=True):
        panels[3].plot(hours, errors(field, true), style, label=name)
    panels[3].set(title="all levels", xlabel="lead time (h)", ylabel="root mean square error (K)", ylim=(0, None))
    panels[3].legend(frameon=False)
    ours, theirs = errors(said, true)[-1], errors(seen, true)[-1]
    figure.suptitle(f"Forecasts of {JUDGED * HOURS} hours err by {ours:.1f} K, and persistence by {theirs:.1f} K")
    figure.savefig(path, dpi=120)


def main() -> None:
    """Train on the first four fifths of the steps, and judge by the others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", help="a Zarr store, or its URL")
    parser.add_argument("--field", default="temperature")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--picture", type=Path, default=Path("weather.png"))
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    grid = voxload.ProcessGrid.from_env((1, 1, dist.get_world_size()))
    steps, learnt, judged = (
        voxload.VolumeDataset(arguments.store, fields={"x": arguments.field}, axes="TDHW", grid=grid, window=window)
        for window in (None, voxload.Window(SEEN, horizon=LEARNT), voxload.Window(SEEN, horizon=JUDGED))
    )
    first = len(steps) * 4 // 5
    climate = torch.stack([steps[index][0][0] for index in range(first)]).mean(0)
    training = learnt.subset(range(first - SEEN - LEARNT + 1))
    loader = voxload.DataLoader(training, batch_size=8, shuffle=True, cache=voxload.Cache(memory="256MiB"))
    model = DistributedDataParallel(voxload.engine.shard(Stepper(), grid))  # the line that splits it
    for epoch, loss in enumerate(train(model, loader, climate, VoxelLoss(nn.MSELoss(), grid), arguments.epochs)):
        if grid.rank == 0:
            read = f"{loader.stats().sources['storage'].fetches} steps read from the store so far"
            print(f"epoch {epoch}, loss {loss:.3f} K^2; {read}", flush=True)
    loader.close()
    seen, said, true = forecast(model, judged.subset(range(first, len(judged))), climate)
    if grid.rank == 0:
        draw(seen, said, true, arguments.picture)
        ours, theirs = errors(said, true)[-1], errors(seen, true)[-1]
        print(f"{len(true)} forecasts of {JUDGED * HOURS} hours: error {ours:.2f} K, persistence {theirs:.2f} K")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
