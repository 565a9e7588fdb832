"""Part: how much of an epoch of CosmoFlow is stall."""

from __future__ import annotations

from bench.proving.stalls import Case, prove_case
from bench.proving.told import Setting, Teller


def prove(setting: Setting, tell: Teller) -> None:
    """Train on cubes of 256^3 with four channels, 128 MiB each as they are stored; an epoch is 16 GiB of them."""
    if setting.is_small:
        case = Case("CosmoFlow", "cosmoflow", 32, samples=4, files=2)
    else:
        case = Case("CosmoFlow", "cosmoflow", 256, samples=128)
    prove_case(case, setting, tell)
