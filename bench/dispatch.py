"""Claim: a network that runs its own forward through the engine costs what it costs in plain torch, small ones too.

A U-Net of functions takes forward and backward passes on one rank and one thread, as it is and split into one block, in
turns; the order changes from round to round. Asked for is a median ratio of at most 1.03, by the process's own time,
which others on the machine do not lengthen. Beside it stands what one of eight ranks takes for a block as large, whose
messages do not travel: what the engine does there for halos, norms and means.

    python bench/dispatch.py [--sizes 16 32 64] [--rounds 15] [--json]
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
import warnings
from pathlib import Path
from statistics import median

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.arguments import number
from bench.finding import Finding, at_most
from tests.support.splitting.functional import FunctionalUNet
from voxload import engine
from voxload.errors import UsageError
from voxload.grid import ProcessGrid

WANTED = 1.03
"""Most times of plain torch's step on one rank."""
_LEAST = 0.2
"""Seconds of one round's steps, so that a clock tick does not count."""
_BLOCKS = (2, 2, 2)
_WIDTHS = (8, 16, 32)
"""Channels of the levels: those of a network that learns on two cores."""


def measure(size: int, rounds: int) -> tuple[Finding, tuple[float, ...], float]:
    """Return the ratios of one rank and of one of eight, round by round, and the seconds of a plain step."""
    torch.manual_seed(0)
    model = FunctionalUNet(1, 2, _WIDTHS)
    x = torch.randn(1, 1, size, size, size)
    whole = (size, size, size)
    one, many = ProcessGrid(), ProcessGrid(_BLOCKS, 8)
    networks = [
        model,
        engine.shard(copy.deepcopy(model), one, shape=whole, exchange=engine.NoExchange(one)),
        engine.shard(
            copy.deepcopy(model), many, shape=tuple(2 * extent for extent in whole), exchange=engine.NoExchange(many)
        ),
    ]
    for network in networks:  # plans are made, and memory is got
        _step(network, x)
    begin = time.process_time()
    _step(model, x)
    steps = max(1, round(_LEAST / (time.process_time() - begin)))
    found: list[dict[int, float]] = []
    for turn in range(rounds):
        order = [(turn + place) % len(networks) for place in range(len(networks))]
        found.append({place: _seconds(networks[place], x, steps) for place in order})
    ratios = [tuple(each[place] / each[0] for each in found) for place in (1, 2)]
    return at_most(f"own forward on one rank, {size}^3", WANTED, ratios[0]), ratios[1], median(e[0] for e in found)


def _step(network: nn.Module, x: Tensor) -> None:
    network.zero_grad()
    network(x).square().mean().backward()


def _seconds(network: nn.Module, x: Tensor, steps: int) -> float:
    begin = time.process_time()
    for _ in range(steps):
        _step(network, x)
    return (time.process_time() - begin) / steps


def main() -> int:
    """Parse the command line and run; returns 1 where one rank takes longer than asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sizes", type=number, nargs="+", default=(16, 32, 64), help="voxels along each axis of a block"
    )
    parser.add_argument("--rounds", type=number, default=15, help="of which the median counts (default 15)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    words = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows = []
    for size in words.sizes:
        try:
            finding, others, plain = measure(size, words.rounds)
        except (UsageError, RuntimeError) as error:
            parser.error(f"--sizes {size}: {error}")
        rows.append(
            {
                "size": size,
                "plain_ms": plain * 1e3,
                "one_rank": finding.median,
                "one_of_eight": median(others),
                "held": finding.is_met,
                "ratios": list(finding.figures),
            }
        )
        if not words.json:
            if size == words.sizes[0]:
                print(f"{'block':>6} {'plain ms':>9} {'one rank':>9} {'one of 8':>9}  asked of one rank: <= {WANTED}")
            verdict = "held" if finding.is_met else "SHORT"
            print(f"{size:>4}^3 {plain * 1e3:>9.2f} {finding.median:>9.3f} {median(others):>9.3f}  {verdict}")
    if words.json:
        print(json.dumps(rows, indent=1))
    return int(not all(row["held"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
