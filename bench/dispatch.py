"""Claim: a network that runs its own forward through the engine costs what it costs in plain torch, small ones too.

A U-Net of functions takes forward and backward passes on one rank and one thread, as it is and split into one block, in
turns, step by step. Asked for is a median ratio of at most 1.03, by the process's own time. What else the machine does
lengthens steps all the same, by the caches and the core that it shares: of the steps of a round the shortest counts.
Two copies of one and the same network may differ by several per cent: each round has networks of its own, and what a
second copy of the plain one takes beside the first says how far off the measure is. Beside it stands what one of eight
ranks takes for a block as large, whose messages do not travel: what the engine does there for halos, norms and means.

    python bench/dispatch.py [--sizes 16 32 64] [--rounds 9] [--json]
"""

from __future__ import annotations

import copy
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness.script import finish, number, parser
from tests.support.splitting.functional import FunctionalUNet
from voxload import engine
from voxload.benchmark.measure.turns import in_turns
from voxload.errors import UsageError
from voxload.grid import ProcessGrid

WANTED = 1.03
"""Most times of plain torch's step on one rank."""
_STEPS = 8
"""Of each network in a round."""
_BLOCKS = (2, 2, 2)
_WIDTHS = (8, 16, 32)
"""Channels of the levels: those of a network that learns on two cores."""


@dataclass(frozen=True, slots=True)
class Row:
    """Blocks of one size."""

    size: int
    plain_ms: float
    """Of a step in plain torch."""
    one_rank: float
    """Times of that on one rank, the median."""
    one_of_eight: float
    """The same on one of eight."""
    copy: float
    """The same of a second copy in plain torch."""
    ratios: list[float]
    """Of one rank, round by round."""
    copies: list[float]
    """Of the second copy, round by round."""


def measure(size: int, rounds: int) -> Row:
    """Time steps in plain torch, twice, on one rank and on one of eight, in turns."""
    torch.manual_seed(0)
    model = FunctionalUNet(1, 2, _WIDTHS)
    x = torch.randn(1, 1, size, size, size)
    found = [_round(model, x) for _ in range(rounds)]
    ratios = {name: [each[name] / each["plain"] for each in found] for name in found[0]}
    return Row(
        size,
        1e3 * median(each["plain"] for each in found),
        median(ratios["one rank"]),
        median(ratios["one of eight"]),
        median(ratios["copy"]),
        ratios["one rank"],
        ratios["copy"],
    )


def _round(model: nn.Module, x: Tensor) -> dict[str, float]:
    """Return the seconds of the shortest step of each network; all are made anew."""
    one, many = ProcessGrid(), ProcessGrid(_BLOCKS, 8)
    whole = tuple(x.shape[2:])
    networks = {
        "plain": copy.deepcopy(model),
        "one rank": engine.shard(copy.deepcopy(model), one, shape=whole, exchange=engine.NoExchange(one)),
        "copy": copy.deepcopy(model),
        "one of eight": engine.shard(
            copy.deepcopy(model), many, shape=tuple(2 * extent for extent in whole), exchange=engine.NoExchange(many)
        ),
    }
    for network in networks.values():  # plans are made, and memory is got
        _seconds(network, x)
    turns = in_turns(tuple(networks), _STEPS, lambda name: _seconds(networks[name], x))
    return {name: min(turns.results[name]) for name in networks}


def _seconds(network: nn.Module, x: Tensor) -> float:
    begin = time.process_time()
    network.zero_grad()
    network(x).square().mean().backward()
    return time.process_time() - begin


def main() -> int:
    """Parse the command line and run; returns 1 where one rank takes longer than asked."""
    options = parser(__doc__, rounds=9)
    options.add_argument("--sizes", type=number, nargs="+", default=(16, 32, 64), help="voxels along a block's axes")
    words = options.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows = []
    for size in words.sizes:
        try:
            rows.append(measure(size, words.rounds))
        except (UsageError, RuntimeError) as error:
            options.error(f"--sizes {size}: {error}")
    return finish(words, rows, lambda row: row.one_rank <= WANTED)


if __name__ == "__main__":
    sys.exit(main())
