"""One network in a process of its own, ``python -m bench.networking.child NAME D,H,W...``: prints outcomes as JSON."""

from __future__ import annotations

import json
import sys
import warnings
from dataclasses import asdict
from math import prod
from typing import Any

import torch

from bench.networking.network import Network
from bench.networking.outcome import GRADIENTS, VALUES, Outcome, Verdict
from bench.networking.zoo import NETWORKS
from voxload.engine import Blocks, check
from voxload.engine.forward.plans import Cut, Plans
from voxload.errors import UsageError
from voxload.grid import ProcessGrid

LARGE = (128, 128, 128)
_HALVES = (2, 2, 2)


def compared(network: Network, spatial: Any) -> Outcome:
    """Compare a network with itself on blocks."""
    torch.manual_seed(0)
    grid = ProcessGrid(spatial, prod(spatial))
    try:
        found = check(network.build(), network.uneven, grid, channels=network.channels, min_width=0)
    except UsageError as error:
        return Outcome(spatial, Verdict.REFUSED, why=str(error))
    modes = [one for one in found.modes.values() if one is not None]
    if not modes:
        return Outcome(spatial, Verdict.RANDOM, why="forward draws random numbers")
    result, gradient = (max(max(each.values(), default=0.0) for each in ones) for ones in _figures(modes))
    is_exact = result <= VALUES and gradient <= GRADIENTS
    why = "" if is_exact else found.difference
    return Outcome(spatial, Verdict.EXACT if is_exact else Verdict.WRONG, result, gradient, why)


def _figures(modes: list[Any]) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    return [one.values for one in modes], [one.gradients for one in modes]


def whole_at_large(network: Network) -> str:
    """Return what a network makes whole of a volume of 128^3 on eight blocks, as text."""
    grid = ProcessGrid(_HALVES, prod(_HALVES))
    model = network.build().train()
    try:
        planned = Plans(model, Cut(grid, Blocks.of(grid, LARGE))).ahead(model, LARGE)
    except UsageError as error:
        return f"refused: {error}"
    if planned is None:
        return "takes no such volume"
    nbytes = [each.nbytes for each in planned.plan.fallbacks]
    return f"{len(nbytes)} calls, at most {max(nbytes) / 2**20:.1f} MiB" if nbytes else "nothing"


def main(name: str, grids: list[str]) -> None:
    """Compare one network on all grids."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    network = next(each for each in NETWORKS if each.name == name)
    for words in grids:
        outcome = compared(network, tuple(map(int, words.split(","))))
        print(json.dumps(asdict(outcome) | {"verdict": outcome.verdict.value}), flush=True)
    print(json.dumps({"whole": whole_at_large(network)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
