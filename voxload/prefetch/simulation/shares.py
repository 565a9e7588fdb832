"""Shares: what one of several equal lines gets of the things that all of them use."""

from __future__ import annotations

from dataclasses import dataclass

from voxload.prefetch.simulation.machine import Machine, Rates


@dataclass(frozen=True, slots=True)
class Shares:
    """Rates as one line sees them while the others do the same as it does.

    Lines are equal and training keeps them in step, so one is simulated: at the storage every one of its ranks stands
    for one of each line. Ranks of a group are neighbours, as `ProcessGrid` numbers them, and so share a node first.
    """

    machine: Machine
    lines: int

    @property
    def lines_on_node(self) -> int:
        """Ranks of one group on a node."""
        return min(self.lines, self.machine.ranks_per_node)

    @property
    def groups_on_node(self) -> int:
        """Groups with ranks on one node."""
        return max(1, self.machine.ranks_per_node // self.lines)

    def node_of(self, group: int) -> int:
        """Return the number of the node whose tiers a group's rank uses."""
        return group // self.groups_on_node

    def storage(self, _transfers: int, clients: int) -> float:
        """Return the storage's bytes per second for this line."""
        return self.machine.storage.read.of(clients * self.lines) / self.lines

    def tier(self, rates: Rates, transfers: int) -> float:
        """Return a node tier's bytes per second for this line."""
        return rates.of(transfers * self.lines_on_node) / self.lines_on_node
