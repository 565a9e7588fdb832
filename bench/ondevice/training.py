"""Training: how long CosmoFlow's steps wait for their batches, and what copies and compute do meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import h5py
import numpy as np
import torch

from bench.ondevice.clock import Span, clock_of, seconds, timed_copier
from voxload.dataset import VolumeDataset
from voxload.loader import boarding
from voxload.loader.dataloader import DataLoader
from voxload.loader.streams import numbered
from voxload.models import CosmoFlow
from voxload.transforms import Compose, Log1p, Standardize

_CHANNELS, _TARGETS = 4, 4
_CHUNK = 64


@dataclass(frozen=True, slots=True)
class Training:
    """One epoch of training."""

    steps: int
    step: float
    """Seconds of a step on a batch that is on the device already."""
    epoch: float
    """Seconds of as many steps on the loader's batches."""
    stalled: float
    """Seconds that the loop waited in the loader, as it says itself."""
    spans: tuple[Span, ...]
    """Copies and computation of the epoch."""

    @property
    def stall_share(self) -> float:
        """Part of the epoch that steps on resident batches would not have taken."""
        return max(0.0, 1 - self.steps * self.step / self.epoch)


def make_samples(folder: Path, size: int, count: int) -> None:
    """Write samples of counts, uncompressed in chunks: storage that keeps up with a GPU."""
    rng = np.random.default_rng(0)
    for number in range(count):
        with h5py.File(folder / f"u{number:03}.h5", "w") as file:
            cube = rng.poisson(3, (_CHANNELS, size, size, size)).astype("<i2")
            file.create_dataset("full", data=cube, chunks=(_CHANNELS, *(min(size, _CHUNK),) * 3))
            file["y"] = rng.uniform(-1, 1, _TARGETS)


def measure(device: torch.device, folder: Path, *, size: int, batch_size: int) -> Training:
    """Train two epochs, the first to warm up; return the figures of the second."""
    device = numbered(device)
    torch.manual_seed(0)
    network = CosmoFlow(size, _CHANNELS, _TARGETS, dropout=0).to(device)
    optimiser = torch.optim.SGD(network.parameters(), lr=1e-4)
    chain = Compose(Log1p(), Standardize([1.0] * _CHANNELS, [0.5] * _CHANNELS))

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        optimiser.zero_grad(set_to_none=True)
        torch.nn.functional.mse_loss(network(x), y).backward()  # type: ignore[no-untyped-call] # torch's
        optimiser.step()

    clock = clock_of(device)
    data = VolumeDataset(f"{folder}/*.h5", fields={"x": "full"}, axes="CDHW", targets="y")
    with mock.patch.object(boarding, "copier_to", lambda device: timed_copier(device, clock)):
        loader = DataLoader(data, batch_size, device=device, drop_last=True, num_workers=2)
        for x, y in loader:
            step(chain(x), y)
        raw = x.clone()
        resident = min(seconds(device, lambda: step(chain(raw), y), len(loader)) for _ in range(2))
        stalled = loader.stats().seconds_stalled
        clock.restart()

        def train() -> None:
            for x, y in loader:
                with clock.span("compute"):
                    step(chain(x), y)

        epoch = seconds(device, train)
        stalled = loader.stats().seconds_stalled - stalled
        found = Training(len(loader), resident, epoch, stalled, tuple(clock.read()))
    loader.close()
    data.close()
    return found
