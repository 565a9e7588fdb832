"""Choices: layers that each have several ways to be split, what these cost, and what moves between two of them cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from voxload.errors import UsageError

Costs = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Edge:
    """What one layer gives and another one takes."""

    source: int
    target: int
    """Numbers of the layers."""
    costs: Costs
    """Of bringing it from each way of the one to each way of the other: (ways of source, ways of target)."""


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """A network whose layers are to be chosen for; costs add up, and infinity is what cannot be.

    Raises
    ------
    UsageError
        Where costs have other shapes than there are ways, or are no numbers.
    """

    costs: tuple[Costs, ...]
    """Of each layer, by its ways."""
    edges: tuple[Edge, ...] = ()
    alike: tuple[tuple[int, ...], ...] = ()
    """Layers that have to be split in one way, such as those of repeated blocks."""

    def __post_init__(self) -> None:
        for number, costs in enumerate(self.costs):
            _require(f"costs of layer {number}", costs, (len(costs),))
        for edge in self.edges:
            ends = edge.source, edge.target
            if not all(0 <= end < len(self.costs) for end in ends) or edge.source == edge.target:
                raise UsageError(f"edge {ends}", found="no two layers", expected=f"two of 0 to {len(self.costs) - 1}")
            _require(f"costs of edge {ends}", edge.costs, tuple(len(self.costs[end]) for end in ends))
        for group in self.alike:
            ways = {len(self.costs[number]) for number in group}
            if len(ways) > 1:
                raise UsageError(f"layers {group}", found=f"{sorted(ways)} ways", expected="as many of each")

    def total(self, chosen: Sequence[int]) -> float:
        """Return what a way for each layer costs; infinity where layers that are to be alike are not."""
        if any(len({chosen[number] for number in group}) > 1 for group in self.alike):
            return float("inf")
        layers = sum(float(costs[way]) for costs, way in zip(self.costs, chosen, strict=True))
        moves = sum(float(edge.costs[chosen[edge.source], chosen[edge.target]]) for edge in self.edges)
        return layers + moves


def _require(subject: str, costs: Any, shape: tuple[int, ...]) -> None:
    if not isinstance(costs, np.ndarray) or costs.shape != shape or not costs.size:
        raise UsageError(subject, found=f"shape {np.shape(costs)}", expected=f"an array of shape {shape}, not empty")
    if np.isnan(costs).any() or np.isneginf(costs).any():
        raise UsageError(subject, found="values that are no numbers, or minus infinity", expected="costs")
