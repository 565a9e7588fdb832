"""Part: how fast the loader's path brings batches to the device, beside plain copies out of pinned memory."""

from __future__ import annotations

from dataclasses import asdict

import torch

from bench.ondevice.transfer import measure
from bench.proving.told import Setting, Teller

_ROUNDS = 3


def prove(setting: Setting, tell: Teller) -> None:
    """Measure a few times: each is the best of rounds in turn."""
    found = [measure(torch.device(setting.device), 16 if setting.is_small else 256) for _ in range(_ROUNDS)]
    tell.figures("copies: bandwidth over a plain pinned copy", *(one.share for one in found))
    tell.figures("copies: GB/s of the plain copy", *(one.plain / 1e9 for one in found))
    tell.detail("transfer", [asdict(one) for one in found])
