"""Randomness: where torch's generators are, on the host and on the device that computes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from voxload.devices import HOST


@dataclass(frozen=True, slots=True)
class Randomness:
    """States of torch's default generators."""

    host: Tensor
    """Of the host's: orders, and what is drawn there."""
    device: Tensor
    """Of the device's, such as for dropout there; empty where the host computes."""

    @classmethod
    def now(cls, device: torch.device) -> Randomness:
        """Return the states as they are."""
        if device.type == HOST:
            return cls(torch.get_rng_state(), torch.zeros(0, dtype=torch.uint8))
        return cls(torch.get_rng_state(), torch.cuda.get_rng_state(device))

    def set(self, device: torch.device) -> None:
        """Go on from here; a device's generator stays where it is if this state is of a run on another kind."""
        torch.set_rng_state(self.host)
        if device.type != HOST and len(self.device):
            torch.cuda.set_rng_state(self.device, device)
