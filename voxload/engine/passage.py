"""Passage: one forward pass of a split network, as its layers see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from voxload.engine.chooser import Chooser
from voxload.engine.exchange.protocol import Exchange

if TYPE_CHECKING:
    from voxload.engine.network import LocalPlan
    from voxload.engine.regions import Regions


@dataclass(frozen=True, slots=True, eq=False)
class Passage:
    """What is fixed while a volume goes through the network."""

    plan: LocalPlan
    """This rank's part of the plan."""
    regions: Regions
    """What the model's modules do."""
    exchange: Exchange
    """Carries the messages."""
    chooser: Chooser
    """Says how convolutions join halos with blocks."""
    seed: Tensor
    """Seed of all random numbers, an int64 scalar, the same on all ranks of the sample group."""
