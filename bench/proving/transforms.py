"""Part: what chains of transforms take, as a multiple of moving their bytes once."""

from __future__ import annotations

from dataclasses import asdict

import torch

from bench.ondevice.fusion import measure
from bench.proving.told import Setting, Teller


def prove(setting: Setting, tell: Teller) -> None:
    """Measure all chains over all stored types."""
    found = measure(torch.device(setting.device), 16 if setting.is_small else 256)
    worst = max(found, key=lambda one: one.multiple)
    tell.figures("transforms: the slowest chain over the floor of memory bandwidth", worst.multiple)
    eager = max(one.eager / one.floor for one in found)
    alone = max(one.alone / one.floor for one in found)
    tell.figures("transforms: the slowest chain in torch, step by step, over the floor", eager)
    tell.figures("transforms: one call by itself, its launch and end included, over the floor", alone)
    tell.detail("transforms", [asdict(one) | {"multiple": one.multiple} for one in found])
