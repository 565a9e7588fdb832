"""Part: how much of an epoch of the U-Net is stall."""

from __future__ import annotations

from bench.proving.stalls import Case, prove_case
from bench.proving.told import Setting, Teller


def prove(setting: Setting, tell: Teller) -> None:
    """Train on patches of 128^3 with four channels, 16 MiB each as they are stored."""
    case = Case("U-Net", "unet3d", size=32, samples=4) if setting.is_small else Case("U-Net", "unet3d", 128)
    prove_case(case, setting, tell)
