"""Claim: training split over ranks equals one process, in every combination of network, grid, wrapper and mode.

Both CosmoFlows and both U-Nets; 2 to 8 real processes over gloo; DDP, FSDP2 and HSDP; plain, with activation
checkpointing, with gradient accumulation, and compiled. Five steps of SGD in float64 against plain torch: losses, every
gradient, and weights and running statistics afterwards. Exit status 1 when one is further away than 1e-12.

    python bench/engine_matrix.py [--networks unet3d-kits19] [--modes plain,compiled] [--wrappers ddp] [--keep FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.arguments import names, number
from bench.splitting.combination import MODES, NETWORKS, WRAPPERS, Combination, everything
from bench.splitting.world import run_world

TOLERANCE = 1e-12
_AT_ONCE = 6
"""Combinations that one set of processes runs: enough that starting them hardly counts."""


class Kept:
    """Errors found so far, in a file where one is named: a run that is ended goes on with what is left."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.found: dict[str, dict[str, float]] = {}
        if path is not None and path.is_file():
            self.found = json.loads(path.read_text())

    def add(self, more: dict[str, dict[str, float]]) -> None:
        """Keep what a few combinations gave."""
        self.found |= more
        if self._path is not None:
            self._path.write_text(json.dumps(self.found, indent=1))


def run(chosen: list[Combination], kept: Kept, limit: float) -> dict[str, dict[str, float]]:
    """Return the worst errors of each combination."""
    by_world = sorted((how for how in chosen if str(how) not in kept.found), key=lambda how: how.world)
    with tqdm(total=len(chosen), initial=len(chosen) - len(by_world), unit="run", disable=None) as bar:
        for start in range(0, len(by_world), _AT_ONCE):
            part = by_world[start : start + _AT_ONCE]
            with tempfile.TemporaryDirectory(prefix="voxload-bench-") as folder:
                kept.add(run_world(part, Path(folder), limit=limit))
            bar.update(len(part))
    return {str(how): kept.found[str(how)] for how in chosen}


def main() -> int:
    """Run the combinations and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=names(*NETWORKS), default=NETWORKS)
    parser.add_argument("--modes", type=names(*MODES), default=MODES)
    parser.add_argument("--wrappers", type=names(*WRAPPERS), default=WRAPPERS)
    parser.add_argument("--limit", type=number, default=1800, help="seconds for a few combinations")
    parser.add_argument("--keep", type=Path, help="file for what was found; combinations in it are not run again")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    chosen = [
        how
        for how in everything()
        if how.network in options.networks and how.mode in options.modes and how.wrapper in options.wrappers
    ]
    found = run(chosen, Kept(options.keep), options.limit)
    worst = max(value for row in found.values() for value in row.values())
    if options.json:
        print(json.dumps({"tolerance": TOLERANCE, "worst": worst, "combinations": found}))
    else:
        table = Table("combination", "loss", "gradients", "weights and statistics", title=f"{len(found)} combinations")
        for name, row in found.items():
            table.add_row(name, *(f"{row[key]:.1e}" for key in ("loss", "gradients", "state")))
        Console().print(table)
        print(f"worst {worst:.1e}, asked {TOLERANCE:g}")
    return 1 if worst > TOLERANCE else 0


if __name__ == "__main__":
    sys.exit(main())
