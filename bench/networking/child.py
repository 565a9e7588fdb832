"""One network in a process of its own, ``python -m bench.networking.child NAME D,H,W...``: prints outcomes as JSON."""

from __future__ import annotations

import json
import sys
import warnings
from math import prod
from typing import Any

import torch
from torch import Tensor

from bench.networking.network import Network
from bench.networking.table import GRADIENTS, VALUES, Outcome, Verdict
from bench.networks import NETWORKS
from voxload.engine import Blocks, check
from voxload.engine.forward.inputs import Inputs
from voxload.engine.forward.plan_cache import PlanCache, SplitOptions
from voxload.errors import UsageError
from voxload.grid import ProcessGrid

_HALVES = (2, 2, 2)
_IMAGE = 2
"""Extents of an image."""
_BATCH = 2


def compared(network: Network, spatial: tuple[int, ...]) -> Outcome:
    """Compare a network with itself on blocks."""
    torch.manual_seed(0)
    grid = _grid(network, spatial)
    model, args = network.build(network.shape), network.args(network.shape)
    try:
        found = check(model, network.shape, grid, channels=network.channels, args=args, min_width=0)
    except UsageError as error:
        return Outcome(spatial, Verdict.REFUSED, why=str(error))
    modes = [one for one in found.modes.values() if one is not None]
    if not modes:
        return Outcome(spatial, Verdict.RANDOM, why="forward draws random numbers in both modes")
    result, gradient = (max(max(each.values(), default=0.0) for each in ones) for ones in _figures(modes))
    is_exact = result <= VALUES and gradient <= GRADIENTS
    why = "" if is_exact else found.difference
    if is_exact and found.not_compared:
        why = f"random numbers in {' and '.join(found.not_compared)}"
        return Outcome(spatial, Verdict.RANDOM, result, gradient, why)
    return Outcome(spatial, Verdict.EXACT if is_exact else Verdict.WRONG, result, gradient, why)


def _figures(modes: list[Any]) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    return [one.values for one in modes], [one.gradients for one in modes]


def _grid(network: Network, spatial: tuple[int, ...]) -> ProcessGrid:
    """Return the grid; an image has one plane, and its blocks along d are blocks along h."""
    if len(network.shape) == _IMAGE:
        spatial = (1, spatial[0] * spatial[1], spatial[2])
    return ProcessGrid(spatial, prod(spatial))  # type: ignore[arg-type] # three numbers


def whole_at_large(network: Network) -> str:
    """Return what a network makes whole of a volume of about 128^3 on eight blocks, as text."""
    grid = _grid(network, _HALVES)
    extents = network.large
    blocks = Blocks.of(grid, extents)
    model = network.build(extents).train()
    own = blocks.box(grid.coords).shape[-len(extents) :]

    def cut(each: Any) -> Any:
        is_volume = isinstance(each, Tensor) and each.shape[-len(extents) :] == extents
        return torch.empty(*each.shape[: -len(extents)], *own) if is_volume else each

    volume = torch.empty(_BATCH, network.channels, *own)
    try:
        inputs = Inputs.of((volume, *map(cut, network.args(extents))), {})
        planned = PlanCache(model, SplitOptions(grid, blocks)).of(model, inputs, blocks)
    except UsageError as error:
        return f"refused: {error}"
    nbytes = [each.nbytes for each in planned.plan.fallbacks]
    return f"{len(nbytes)} calls, at most {max(nbytes) / 2**20:.1f} MiB" if nbytes else "nothing"


def main(name: str, grids: list[str]) -> None:
    """Compare one network on all grids."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    network = next(each for each in NETWORKS if each.title == name)
    for words in grids:
        outcome = compared(network, tuple(map(int, words.split(","))))
        print(json.dumps(outcome.document()), flush=True)
    print(json.dumps({"whole": whole_at_large(network)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
