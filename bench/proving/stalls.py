"""Stalls: an epoch of a network with voxload beside the same steps on a batch that is there already."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from bench.ondevice import picture, training
from bench.proving.told import Setting, Teller

_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Case:
    """One network."""

    title: str
    """As claims name it."""
    network: training.Network
    size: int
    """Voxels along each axis."""
    samples: int = 32
    """Of an epoch; they are read from the page cache, as from storage that keeps up."""
    files: int = 32
    """Different ones among them: the others are further names of these."""


def prove_case(case: Case, setting: Setting, tell: Teller) -> None:
    """Train a few times, and draw copies and computation of the middle one by stall."""
    device = torch.device(setting.device)
    with tempfile.TemporaryDirectory() as folder:
        training.make_samples(Path(folder), case.size, case.samples, files=min(case.files, case.samples))
        found = [
            training.measure(device, Path(folder), size=case.size, batch_size=1, network=case.network)
            for _ in range(1 if setting.is_small else _ROUNDS)
        ]
    tell.figures(f"{case.title}: share of an epoch that is stall", *(one.stall_share for one in found))
    beyond = f"{case.title}: seconds of an epoch beyond its steps on resident batches"
    tell.figures(beyond, *(one.epoch - one.steps * one.step for one in found))
    tell.figures(f"{case.title}: samples a second", *(one.steps / one.epoch for one in found))
    middle = sorted(found, key=lambda one: one.stall_share)[len(found) // 2]
    title = f"{case.title}, {case.size}^3 x {training.CHANNELS} int16, on {device}"
    picture.draw(middle.spans, setting.output / f"{case.network}.png", title=title)
    figures = [{name: value for name, value in asdict(one).items() if name != "spans"} for one in found]
    tell.detail(case.network, figures)
