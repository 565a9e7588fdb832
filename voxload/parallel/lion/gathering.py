"""States of all groups in one: what a checkpoint has, from which any number of groups goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from voxload.grid import ProcessGrid
from voxload.parallel.lion.buckets import MOMENTUM
from voxload.parallel.lion.wire import Wire

GROUPS = "groups"
"""Name of the number of groups whose momentum a state has."""


def gathered(state: Mapping[str, Any], wire: Wire) -> dict[str, Any] | None:
    """Return a state with the momentum of all groups ``(groups, ...)`` on the host of rank 0, else None."""
    found: dict[Any, dict[str, Any]] = {}
    for key, values in state["state"].items():
        momenta = wire.gathered_at_first(values[MOMENTUM])
        if momenta is not None:
            found[key] = {**values, MOMENTUM: momenta.cpu()}
    return {**state, "state": found, GROUPS: wire.groups} if wire.group == wire.place == 0 else None


def of_group(state: Mapping[str, Any], grid: ProcessGrid) -> dict[str, Any]:
    """Return the state of one group; where another number of groups was gathered, their mean momentum."""
    groups = state[GROUPS]
    found: dict[Any, dict[str, Any]] = {}
    for key, values in state["state"].items():
        momenta: Tensor = values[MOMENTUM]
        own = momenta[grid.group] if groups == grid.groups else momenta.mean(0)
        found[key] = {**values, MOMENTUM: own.clone()}
    return {"state": found, "param_groups": state["param_groups"]}
