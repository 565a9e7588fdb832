"""Denoise one huge image without clean ones: the ranks learn from patches of it, and clean it together.

torchrun --standalone --nproc-per-node 2 examples/microscopy/train.py image/embryo.zarr --truth image/truth.zarr

A network that never sees a voxel's own value learns to tell it from those around it: what it tells is the signal, for
noise of neighbours says nothing of a voxel's (Noise2Void, Krull et al., CVPR 2019). Patches lie at random places; the
cache keeps the pieces of the image that they touch, so that each is read from the store once.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import voxload
from voxload.augment import Augment, Flips
from voxload.transforms import Scale

HIDDEN = 0.03
"""Share of the voxels of a patch that are hidden from the network, which has to tell them."""
MICROMETRES = 0.5
"""Between voxels along y and x."""


def network() -> nn.Module:
    """Return a small network that keeps the shape of its input."""
    layers: list[nn.Module] = []
    for before, after in ((1, 16), (16, 16), (16, 16)):
        layers += [nn.Conv3d(before, after, 3, padding=1), nn.LeakyReLU(0.1)]
    return nn.Sequential(*layers, nn.Conv3d(16, 1, 1))


def train(model: nn.Module, loader: voxload.DataLoader, epochs: int) -> Iterator[tuple[float, int]]:
    """Train, and yield each epoch's mean loss, and the pieces that all ranks read from the store so far."""
    optimiser = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-2, total_steps=epochs * len(loader))
    for _ in range(epochs):
        total = torch.zeros(2, dtype=torch.float64)
        for (voxels,) in loader:
            hidden = torch.rand_like(voxels) < HIDDEN
            neighbours = voxels.roll(1, dims=-1)
            loss = (model(torch.where(hidden, neighbours, voxels)) - voxels)[hidden].square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            total[0] += loss.item()
        total[1] = loader.stats().sources["storage"].fetches
        dist.all_reduce(total)
        yield float(total[0]) / len(loader) / dist.get_world_size(), int(total[1])


@torch.no_grad()
def clean(trained: nn.Module, image: str, scale: Scale, grid: voxload.ProcessGrid) -> tuple[Tensor, Tensor]:
    """Return the image and what the network makes of it, (z, y, x) each; the ranks share it, cut along x."""
    shared = voxload.engine.shard(copy.deepcopy(trained), grid)
    block = scale(voxload.VolumeDataset(image, grid=grid)[0][0][None])
    world: list[Any] = [None] * grid.world_size
    dist.all_gather_object(world, torch.stack([block, shared(block)])[:, 0, 0])
    noisy, cleaned = torch.cat(world, -1)
    return noisy, cleaned


def decibels(image: Tensor, truth: Tensor) -> float:
    """Return the peak signal-to-noise ratio."""
    return float(10 * torch.log10(truth.max() ** 2 / (image - truth).square().mean()))


def draw(panels: dict[str, Tensor], title: str, path: Path) -> None:
    """Draw the middle plane of images, on one scale of brightness."""
    figure = Figure(figsize=(4.2 * len(panels) + 0.8, 4.8), layout="constrained")
    middle = {name: image[len(image) // 2] for name, image in panels.items()}
    limit = float(max(plane.quantile(0.999) for plane in middle.values()))
    every = figure.subplots(1, len(panels), sharey=True)
    for axes, (name, plane) in zip(every, middle.items(), strict=True):
        extent = (0, plane.shape[1] * MICROMETRES, plane.shape[0] * MICROMETRES, 0)
        drawn = axes.imshow(plane, cmap="magma", vmin=0, vmax=limit, extent=extent)
        axes.set(title=name, xlabel="x (micrometres)")
    every[0].set_ylabel("y (micrometres)")
    figure.colorbar(drawn, ax=every, label="photons", shrink=0.8)
    figure.suptitle(title)
    figure.savefig(path, dpi=120)


def main() -> None:
    """Train on patches of the image, clean it, and compare where there is a truth."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("image", help="OME-Zarr, or its URL")
    parser.add_argument("--truth", help="the same without noise, to judge by")
    parser.add_argument("--dark", type=float, default=100, help="what the camera counts without light")
    parser.add_argument("--patches", type=int, default=96, help="patches of an epoch")
    parser.add_argument("--memory", default="1GiB", help="of this node, for pieces of the image")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--picture", type=Path, default=Path("microscopy.png"))
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())  # ranks hide other voxels; DistributedDataParallel gives them one network
    ranks = dist.get_world_size()
    patches = voxload.Patches((16, 32, 32), per_sample=arguments.patches)
    grid = voxload.ProcessGrid.from_env()
    data = voxload.VolumeDataset(arguments.image, grid=grid, patches=patches, augment=Augment(Flips(), seed=0))
    coarse = voxload.VolumeDataset(arguments.image, level=2)[0][0].float() - arguments.dark
    scale = Scale(1 / float(coarse.std()), -arguments.dark / float(coarse.std()))
    cache = voxload.Cache(memory=arguments.memory)
    loader = voxload.DataLoader(data, batch_size=4, shuffle=True, transform=scale, cache=cache)
    trained = network()
    for epoch, (loss, read) in enumerate(train(DistributedDataParallel(trained), loader, arguments.epochs)):
        if grid.rank == 0:
            print(f"epoch {epoch}, loss {loss:.4f}; {read} pieces read from the store so far", flush=True)
    loader.close()
    noisy, cleaned = (
        each / scale.scale
        for each in clean(trained, arguments.image, scale, voxload.ProcessGrid.from_env((1, 1, ranks)))
    )
    if grid.rank == 0:
        panels, title = {"image": noisy, "network": cleaned}, "An image, cleaned by a network that saw no clean one"
        if arguments.truth is not None:
            panels["truth"] = voxload.VolumeDataset(arguments.truth)[0][0][0].float() - arguments.dark
            before, after = (decibels(image, panels["truth"]) for image in (noisy, cleaned))
            title = f"Signal over noise: {before:.1f} dB, and {after:.1f} dB after a network that saw no clean image"
            print(f"signal over noise: {before:.1f} dB before, {after:.1f} dB after")
        draw(panels, title, arguments.picture)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
