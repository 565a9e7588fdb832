"""The engine on a device: one rank over torch.distributed, in every way of training, beside plain torch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.support.ranks import printed_by_ranks

SCRIPT = Path(__file__).parent / "rank_on_device.py"
TOLERANCES = {"plain": 1e-12, "ddp": 1e-12, "fsdp2": 1e-12, "compiled": 1e-12, "half": 2e-2}
"""Half types have 8 to 11 bits, and three steps."""


@pytest.mark.gpu
@pytest.mark.long
def test_one_rank_trains_as_plain_torch(device: torch.device) -> None:
    """Plain, under DDP, FSDP2 and torch.compile, and in mixed precision with a scaled loss."""
    errors = json.loads(printed_by_ranks(SCRIPT, device.type, ranks=1).splitlines()[-1])
    assert errors.keys() == TOLERANCES.keys()
    assert all(errors[way] <= most for way, most in TOLERANCES.items()), errors
