"""Claim: training split over ranks equals one process, in every combination of network, grid, wrapper and mode.

Both CosmoFlows and both U-Nets; 2 to 8 real processes over gloo; DDP, FSDP2 and HSDP; plain, with activation
checkpointing, with gradient accumulation, and compiled. Five steps of SGD in float64 against plain torch: losses, every
gradient, and weights and running statistics afterwards. Exit status 1 when one is further away than 1e-12.

    python bench/engine_matrix.py [--networks unet3d-kits19] [--modes plain,compiled] [--wrappers ddp] [--json]
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


def run(chosen: list[Combination], limit: float) -> dict[str, dict[str, float]]:
    """Return the worst errors of each combination."""
    found: dict[str, dict[str, float]] = {}
    by_world = sorted(chosen, key=lambda how: how.world)
    with tqdm(total=len(chosen), unit="run", disable=None) as bar:
        for start in range(0, len(by_world), _AT_ONCE):
            part = by_world[start : start + _AT_ONCE]
            with tempfile.TemporaryDirectory(prefix="voxload-bench-") as folder:
                found |= run_world(part, Path(folder), limit=limit)
            bar.update(len(part))
    return found


def main() -> int:
    """Run the combinations and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=names(*NETWORKS), default=NETWORKS)
    parser.add_argument("--modes", type=names(*MODES), default=MODES)
    parser.add_argument("--wrappers", type=names(*WRAPPERS), default=WRAPPERS)
    parser.add_argument("--limit", type=number, default=1800, help="seconds for a few combinations")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    chosen = [
        how
        for how in everything()
        if how.network in options.networks and how.mode in options.modes and how.wrapper in options.wrappers
    ]
    found = run(chosen, options.limit)
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
