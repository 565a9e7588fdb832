"""Training: how much of a network's epoch is stall, beside the same steps on a batch that is there already."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal
from unittest import mock

import h5py
import numpy as np
import torch

from bench.proving import picture
from bench.proving.clock import Span, clock_of, seconds, timed_copier
from bench.proving.told import Setting, Teller
from voxload.data.dataset import VolumeDataset
from voxload.loader.dataloader import DataLoader
from voxload.loader.device import batches
from voxload.loader.device.copiers import with_index
from voxload.models import CosmoFlow, UNet3D
from voxload.transforms import Compose, Log1p, Standardize

_CHANNELS = 4
_TARGETS = 4
_CLASSES = 3
_CHUNK = 64
_WHOLE = 128
"""Voxels along each axis from which on the U-Net is the whole one; below, it is one for tests."""
_NARROW = (8, 16, 32)
_RESIDENT = 32
"""Most steps that are timed on a batch that is there."""
_THREADS = 8
"""That read, at most: as many as have a core."""
_MOST = 12
"""Counts of a voxel are below it."""
_ROUNDS = 3
Network = Literal["cosmoflow", "unet3d"]
"""Names of the networks: one has a result for the sample, one for each voxel."""


@dataclass(frozen=True, slots=True)
class Case:
    """One network, and what it trains on."""

    title: str
    """As claims name it."""
    network: Network
    size: int
    """Voxels along each axis."""
    samples: int = 32
    """Of an epoch; they are read from the page cache, as from storage that keeps up."""
    files: int = 32
    """Different ones among them: the others are further names of these."""


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


def prove_cosmoflow(setting: Setting, tell: Teller) -> None:
    """Train on cubes of 256^3 with four channels, 128 MiB each as they are stored; an epoch is 16 GiB of them."""
    small = Case("CosmoFlow", "cosmoflow", 32, samples=4, files=2)
    _prove(small if setting.is_small else Case("CosmoFlow", "cosmoflow", 256, samples=128), setting, tell)


def prove_unet3d(setting: Setting, tell: Teller) -> None:
    """Train on patches of 128^3 with four channels, 16 MiB each as they are stored."""
    small = Case("U-Net", "unet3d", 32, samples=4, files=4)
    _prove(small if setting.is_small else Case("U-Net", "unet3d", 128), setting, tell)


def _prove(case: Case, setting: Setting, tell: Teller) -> None:
    """Train a few times, and draw copies and computation of the middle one by stall."""
    device = torch.device(setting.device)
    with tempfile.TemporaryDirectory() as folder:
        _make_samples(Path(folder), case)
        found = [_measure(device, Path(folder), case) for _ in range(1 if setting.is_small else _ROUNDS)]
    tell.figures(f"{case.title}: share of an epoch that is stall", *(one.stall_share for one in found))
    beyond = f"{case.title}: seconds of an epoch beyond its steps on resident batches"
    tell.figures(beyond, *(one.epoch - one.steps * one.step for one in found))
    tell.figures(f"{case.title}: samples a second", *(one.steps / one.epoch for one in found))
    middle = sorted(found, key=lambda one: one.stall_share)[len(found) // 2]
    title = f"{case.title}, {case.size}^3 x {_CHANNELS} int16, on {device}"
    picture.draw(middle.spans, setting.output / f"{case.network}.png", title=title)
    figures = [{name: value for name, value in asdict(one).items() if name != "spans"} for one in found]
    tell.detail(case.network, figures)


def _make_samples(folder: Path, case: Case) -> None:
    """Write samples of counts, uncompressed in chunks: storage that keeps up with a GPU."""
    rng = np.random.default_rng(0)
    for number in range(case.samples):
        path = folder / f"u{number:03}.h5"
        if number >= case.files:
            path.hardlink_to(folder / f"u{number % case.files:03}.h5")
            continue
        with h5py.File(path, "w") as file:
            cube = rng.integers(0, _MOST, (_CHANNELS, *(case.size,) * 3), dtype="<i2")
            file.create_dataset("full", data=cube, chunks=(_CHANNELS, *(min(case.size, _CHUNK),) * 3))
            file["y"] = rng.uniform(-1, 1, _TARGETS)


def _measure(device: torch.device, folder: Path, case: Case) -> Training:
    """Train two epochs, the first to warm up; return the figures of the second.

    On a GPU steps are as its users take them: autocast to bfloat16, channels last.
    """
    device = with_index(device)
    torch.manual_seed(0)
    model, loss = _network(case.network, case.size)
    layout = torch.channels_last_3d if device.type == "cuda" else torch.contiguous_format
    model = model.to(device, memory_format=layout)  # type: ignore[call-overload] # torch's stubs know images alone
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-4)
    chain = Compose(Log1p(), Standardize([1.0] * _CHANNELS, [0.5] * _CHANNELS))

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            found = model(x.contiguous(memory_format=layout))
        loss(found, y).backward()  # type: ignore[no-untyped-call] # torch's
        optimiser.step()

    clock = clock_of(device)
    threads = min(_THREADS, len(os.sched_getaffinity(0)))
    data = VolumeDataset(f"{folder}/*.h5", fields={"x": "full"}, axes="CDHW", targets="y")
    with mock.patch.object(batches, "copier_to", lambda device: timed_copier(device, clock)):
        loader = DataLoader(data, 1, device=device, drop_last=True, num_workers=threads)
        for x, y in loader:
            step(chain(x), y)
        raw = x.clone()
        steps = min(_RESIDENT, len(loader))
        resident = min(seconds(device, lambda: step(chain(raw), y), steps) for _ in range(2))
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


def _network(name: Network, size: int) -> tuple[torch.nn.Module, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]:
    """Return a network and its loss; that of voxels has the class 0 everywhere for its truth."""
    if name == "cosmoflow":
        return CosmoFlow(size, _CHANNELS, _TARGETS, dropout=0), lambda found, y: _squared(found.float(), y)
    widths = None if size >= _WHOLE else _NARROW
    return UNet3D(_CHANNELS, _CLASSES, widths=widths), lambda found, _: -found.float().log_softmax(1)[:, 0].mean()


def _squared(found: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.mse_loss(found, y)
