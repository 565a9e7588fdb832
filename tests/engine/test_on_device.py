"""The engine on a device: one rank over torch.distributed, in every way of training, beside plain torch."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from tests.support import processes

SCRIPT = Path(__file__).parent / "rank_on_device.py"
TOLERANCES = {"plain": 1e-12, "ddp": 1e-12, "fsdp2": 1e-12, "compiled": 1e-12, "half": 2.0}
"""Relative differences; of half types, times of plain torch's own error in them."""


@pytest.mark.gpu
@pytest.mark.long
def test_one_rank_trains_as_plain_torch(device: torch.device, tmp_path: Path) -> None:
    """Plain, under DDP, FSDP2 and torch.compile, and in mixed precision with a scaled loss.

    Not forked from what has imported torch: that may have looked for GPUs, which a child then cannot use.
    """
    command = [sys.executable, str(SCRIPT), device.type, str(tmp_path / "meeting")]
    errors = json.loads(processes.run(command, capture_output=True, text=True).stdout.splitlines()[-1])
    assert errors.keys() == TOLERANCES.keys()
    assert all(errors[way] <= most for way, most in TOLERANCES.items()), errors
