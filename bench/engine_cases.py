"""Claim: any layer over any cut of any volume equals torch in one process to rounding, in float64.

Draws random layers, volumes and cuts (uneven, thinner than the halo, empty blocks; any cut asked of the output), runs
each on virtual ranks, forward and backward, and compares outputs, all gradients and running statistics with torch's.
The tests run 5,000 of the same cases; this runs as many as wanted. Exit status 1 when one is further away than 1e-12.

    python bench/engine_cases.py [--cases 20000] [--seed 0] [--only convolution,interpolation] [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import torch
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.arguments import names, number
from bench.splitting.cases import LAYERS, Case, draw
from bench.splitting.compare import compare

TOLERANCE = 1e-12


@dataclass(slots=True)
class Tally:
    """What became of one kind of layer."""

    kind: str
    """Its name."""
    cases: int = 0
    """Cases compared."""
    worst: float = 0.0
    """Largest relative error of any quantity."""
    worst_case: str = ""
    """The case that had it."""


def run(kinds: tuple[str, ...], cases: int, seed: int) -> list[Tally]:
    """Compare `cases` random cases, dealt out evenly over `kinds`."""
    random = Random(seed)  # noqa: S311 - cases need no secrecy
    tallies = [Tally(kind) for kind in kinds]
    for index in tqdm(range(cases), unit="case", disable=None):
        tally = tallies[index % len(tallies)]
        case = _drawn(random, tally.kind)
        worst = compare(case).worst
        tally.cases += 1
        if worst > tally.worst:
            tally.worst, tally.worst_case = worst, repr(case)
    return tallies


def _drawn(random: Random, kind: str) -> Case:
    """Return the next case that torch itself accepts."""
    while True:
        case = draw(random, kind)
        if case is not None:
            return case


def main() -> int:
    """Run the comparison and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=number, default=20000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=names(*LAYERS), default=tuple(LAYERS))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="Using padding='same' with even kernel")
    start = time.perf_counter()
    tallies = run(options.only, options.cases, options.seed)
    seconds = time.perf_counter() - start
    if options.json:
        print(json.dumps({"seconds": seconds, "tolerance": TOLERANCE, "kinds": [asdict(each) for each in tallies]}))
    else:
        table = Table("layer", "cases", "worst relative error", title=f"{options.cases} cases in {seconds:.0f} s")
        for each in tallies:
            table.add_row(each.kind, str(each.cases), f"{each.worst:.1e}")
        Console().print(table)
    bad = [each for each in tallies if each.worst > TOLERANCE]
    for each in bad:
        print(f"beyond {TOLERANCE:g}: {each.worst:.1e} for {each.worst_case}", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
