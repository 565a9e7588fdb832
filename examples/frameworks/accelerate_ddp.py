"""Hugging Face Accelerate: prepared loaders deal the batches to the processes.

torchrun --nproc-per-node=2 examples/frameworks/accelerate_ddp.py universes/ --loader voxload

With ``--loader torch voxload`` it trains twice, to the same losses.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn

import voxload
from voxload.loader.accelerate import prepare

LOADERS = {"torch": torch.utils.data.DataLoader, "voxload": voxload.DataLoader}


def network() -> nn.Module:
    """Return a small regression network for universes of 32^3 x 4."""
    return nn.Sequential(
        nn.Conv3d(4, 8, 3, padding=1),
        nn.LeakyReLU(),
        nn.MaxPool3d(4),
        nn.Conv3d(8, 16, 3, padding=1),
        nn.LeakyReLU(),
        nn.MaxPool3d(4),
        nn.Flatten(),
        nn.Linear(16 * 2**3, 2),
    )


def train(
    accelerator: Accelerator, make_loader: type[torch.utils.data.DataLoader[Any]], data: voxload.VolumeDataset
) -> Iterator[float]:
    """Train for two epochs and yield each epoch's mean loss over all ranks."""
    set_seed(0)
    model = network()
    model, optimiser = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=1e-3))
    # Not forked: this process has threads by now, whose locks a fork would copy as they are.
    workers: dict[str, Any] = {"num_workers": 1, "persistent_workers": True, "multiprocessing_context": "forkserver"}
    loader = prepare(accelerator, make_loader(data, batch_size=2, shuffle=True, **workers))
    for _ in range(2):
        total = torch.zeros((), device=accelerator.device)
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x.float().log1p()), y)
            optimiser.zero_grad()
            accelerator.backward(loss)
            optimiser.step()
            total += loss.detach()
        yield accelerator.reduce(total, "mean").item() / len(loader)


def main() -> None:
    """Train with each loader that was named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("universes", help="a catalogue or its folder")
    parser.add_argument("--loader", nargs="+", choices=LOADERS, default=["voxload"])
    arguments = parser.parse_args()
    accelerator = Accelerator(cpu=True)
    data = voxload.VolumeDataset(arguments.universes, targets=["Omega_m", "sigma_8"])
    for name in arguments.loader:
        for epoch, loss in enumerate(train(accelerator, LOADERS[name], data)):
            accelerator.print(f"{name}: epoch {epoch}, loss {loss!r}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
