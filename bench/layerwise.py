"""Claim: what voxload plan --layers chooses for every layer is faster than any use of the grid that all layers share.

A U-Net and CosmoFlow on four processes of this machine, each sample over a grid of 2 x 2 x 1 and of 4 x 1 x 1: what was
chosen, and all layers for space, for filters, for channels and for nothing, along all axes or the last one (those that
cannot, for space). Wanted: the choice takes less than all others in the model, and is not slower when it runs.

    voxload plan calibrate --output node.toml
    python bench/layerwise.py --machine node.toml [--turns 3] [--json]
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness.script import finish, names, number, parser
from bench.planning.nets import SAMPLES
from voxload.errors import UsageError
from voxload.plan.forecast.exact import exact
from voxload.plan.forecast.forecast import Forecast, Oracle
from voxload.plan.forecast.layerwise import LayerChooser, candidates
from voxload.plan.forecast.setups import Setup
from voxload.plan.forecast.training import Training
from voxload.plan.platform import files
from voxload.plan.platform.platform import Platform
from voxload.plan.validation.run import ValidationCase, validate

GRIDS = ((2, 2, 1), (4, 1, 1))
CHOSEN = "chosen"
NOISE = 0.05
"""Share of a step by which equal runs differ here."""


@dataclass(frozen=True, slots=True)
class Row:
    """One use of the grid by the layers of a network."""

    network: str
    grid: str
    use: str
    layers: int
    """That do not cut space alone."""
    said_seconds: float
    seconds: float
    """Of a step that ran; 0 where none did."""
    memory_mib: int


def main() -> int:
    """Choose, say, run, compare and print."""
    words = parser(__doc__)
    words.add_argument("--machine", required=True, help="file that voxload plan calibrate wrote here")
    words.add_argument("--networks", type=names(*SAMPLES), default=("unet", "cosmoflow"), help="with commas")
    words.add_argument("--turns", type=number, default=3, help="jobs that run all of it; medians count (default 3)")
    words.add_argument("--ranks", type=number, default=4, help="of grids, at most (default 4)")
    given = words.parse_args()
    platform = files.load(given.machine)
    said = {
        (network, spatial, use): forecast
        for network in given.networks
        for spatial in GRIDS
        if prod(spatial) <= given.ranks
        for use, forecast in _uses(network, spatial, platform)
    }
    took = _run(said, given.turns) if platform.calibration is not None else {}
    rows = [
        Row(
            network,
            "x".join(map(str, spatial)),
            use,
            len(forecast.layers),
            forecast.time.total,
            took.get((network, spatial, use), 0.0),
            forecast.memory.use.total // 2**20,
        )
        for (network, spatial, use), forecast in said.items()
    ]
    best = defaultdict[tuple[str, str], list[Row]](list)
    for row in rows:
        if row.use != CHOSEN:
            best[row.network, row.grid].append(row)

    def is_right(row: Row) -> bool:
        others = best[row.network, row.grid]
        if row.use != CHOSEN or not others:
            return True
        is_said = row.said_seconds <= min(each.said_seconds for each in others) * (1 + 1e-6)
        return is_said and row.seconds <= min(each.seconds for each in others) * (1 + NOISE)

    return finish(given, rows, is_right)


Key = tuple[str, tuple[int, int, int], str]


def _uses(network: str, spatial: tuple[int, int, int], platform: Platform) -> Iterator[tuple[str, Forecast]]:
    """Yield what is chosen, and all uses that layers share; of those that come to the same the first."""
    setup = Setup(spatial, 1, 1)
    oracle = Oracle(Training(f"bench.planning.nets:{network}", SAMPLES[network], 1), platform, nodes=1)
    chooser = LayerChooser(oracle, setup)
    yield CHOSEN, exact(oracle, setup, chooser.best().layers)[0]
    seen = list[dict[str, str]]()
    for uses in candidates(spatial):
        try:
            layers = chooser.uniform(uses).layers
        except UsageError as refusal:
            print(f"{network} {spatial}: {refusal}", file=sys.stderr)
            continue
        if layers not in seen:
            seen.append(layers)
            yield ",".join(use.value for use in uses), exact(oracle, setup, layers)[0]


def _run(said: dict[Key, Forecast], turns: int) -> dict[Key, float]:
    """Return the median seconds of steps, all of them run once in each of several jobs."""
    cases = {
        key: ValidationCase(f"bench.planning.nets:{key[0]}", SAMPLES[key[0]], key[1], 1, 1, layers=dict(each.layers))
        for key, each in said.items()
    }
    found = defaultdict[Key, list[float]](list)
    for _ in range(turns):
        own = {key: replace(case) for key, case in cases.items()}
        by_case = {id(case): key for key, case in own.items()}
        for each in validate([(case, said[key]) for key, case in own.items()]):
            found[by_case[id(each.case)]].append(each.measured.total)
    return {key: median(seconds) for key, seconds in found.items()}


if __name__ == "__main__":
    sys.exit(main())
