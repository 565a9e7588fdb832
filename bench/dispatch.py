"""Claim: a network that runs its own forward through the engine costs what it costs in plain torch, small ones too.

A U-Net of functions takes forward and backward passes on one rank and one thread, as it is and split into one block, in
turns, step by step. Asked for is a median ratio of at most 1.03, by the process's own time. What else the machine does
lengthens steps all the same, by the caches and the core that it shares: of the steps of a round the shortest counts.
Two copies of one and the same network may differ by several per cent, by the memory that they get: each round has
networks of its own, made and run in an order of its own, and two of the plain one, of which the mean counts; what one
takes beside the other says how far off the measure is. Beside it stands what one of eight ranks takes for a block as
large, whose messages do not travel: what the engine does there for halos, norms and means.

    python bench/dispatch.py [--sizes 16 32 64] [--rounds 24] [--json]
"""

from __future__ import annotations

import copy
import random
import sys
import time
import warnings
from collections.abc import Callable
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
_STEPS = 3
"""Of each network in a round."""
_BLOCKS = (2, 2, 2)
_WIDTHS = (8, 16, 32)
"""Channels of the levels: those of a network that learns on two cores."""


@dataclass(frozen=True, slots=True)
class Row:
    """Blocks of one size."""

    size: int
    plain_ms: float
    """Of a step in plain torch, the mean of two copies."""
    one_rank: float
    """Times of that on one rank, the median."""
    one_of_eight: float
    """The same on one of eight."""
    copy: float
    """Times of the first copy in plain torch that the second one takes."""
    ratios: list[float]
    """Of one rank, round by round."""
    copies: list[float]
    """Of the second copy, round by round."""


def measure(size: int, rounds: int) -> Row:
    """Time steps in plain torch, twice, on one rank and on one of eight, in turns."""
    torch.manual_seed(0)
    model = FunctionalUNet(1, 2, _WIDTHS)
    x = torch.randn(1, 1, size, size, size)
    found = [_round(model, x, number) for number in range(rounds)]
    plain = [(each["plain"] + each["copy"]) / 2 for each in found]
    ratios = {name: [each[name] / one for each, one in zip(found, plain, strict=True)] for name in found[0]}
    copies = [each["copy"] / each["plain"] for each in found]
    return Row(
        size,
        1e3 * median(plain),
        median(ratios["one rank"]),
        median(ratios["one of eight"]),
        median(copies),
        ratios["one rank"],
        copies,
    )


def _round(model: nn.Module, x: Tensor, number: int) -> dict[str, float]:
    """Return the seconds of the shortest step of each network; all are made anew, and run, in another order."""
    whole = tuple(x.shape[2:])
    makers: dict[str, Callable[[], nn.Module]] = {
        "plain": lambda: copy.deepcopy(model),
        "copy": lambda: copy.deepcopy(model),
        "one rank": lambda: _split(model, ProcessGrid(), whole),
        "one of eight": lambda: _split(model, ProcessGrid(_BLOCKS, 8), tuple(2 * extent for extent in whole)),
    }
    # Which memory a network gets, and what ran before it in the caches, is not always another one's luck.
    names = random.Random(number).sample(list(makers), len(makers))  # noqa: S311 - no secret
    networks = {name: makers[name]() for name in names}
    for network in networks.values():  # plans are made, and memory is got
        _seconds(network, x)
    turns = in_turns(names, _STEPS, lambda name: _seconds(networks[name], x))
    return {name: min(turns.results[name]) for name in makers}


def _split(model: nn.Module, grid: ProcessGrid, shape: tuple[int, ...]) -> nn.Module:
    return engine.shard(copy.deepcopy(model), grid, shape=shape, exchange=engine.NoExchange(grid))


def _seconds(network: nn.Module, x: Tensor) -> float:
    begin = time.process_time()
    network.zero_grad()
    network(x).square().mean().backward()
    return time.process_time() - begin


def main() -> int:
    """Parse the command line and run; returns 1 where one rank takes longer than asked."""
    options = parser(__doc__, rounds=24)
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
