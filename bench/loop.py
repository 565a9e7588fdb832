"""Claim: nothing stands between a ready batch and the loop, and a loop that works is not disturbed.

Four parts. `ready`: what a step waits for a batch that has long been there, p50 and p99, for every kind of storage, one
rank and two of a group, batches of 1 and of 8, by the ranks of `voxload bench run`. `beside`: how much longer work of
the loop's own thread takes beside the loader than beside another process that reads the same at the same pace. `first`:
how long a fresh process takes to its first item, beyond importing torch. `chunks`: volumes of HDF5 in chunks of 16^3,
by one thread, against h5py that decodes as many. All contenders take turns. The exit status is 1 when something that
was asked for was not reached.

    python bench/loop.py --quick
    python bench/loop.py --parts ready --stores npy,hdf5-gzip --rounds 5
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness import script
from bench.harness.findings import Outcome, conclude
from bench.looping import beside, chunks, first, ready
from bench.looping.cases import STORES
from voxload.benchmark.run.hosts import describe_host

FULL = {"size": 32, "sizes": (64, 128), "steps": 100, "rounds": 3}
QUICK = {"size": 16, "sizes": (32,), "steps": 12, "rounds": 1}
PARTS = ("ready", "beside", "first", "chunks")
FACTS = ("processor", "cores", "system", "python", "versions")


def main(words: Sequence[str] | None = None) -> int:
    """Run the parts; return 1 when something that was asked for was not reached."""
    options = _parsed(words)
    console = Console(width=max(Console().width, 132))
    outcomes: dict[str, Outcome] = {}
    with script.folder(options.folder) as folder:
        facts = describe_host(str(folder), ())
        console.print(", ".join(f"{name} {facts[name]}" for name in FACTS), highlight=False)
        rounds, steps = options.rounds, options.steps
        parts: dict[str, Callable[[], Outcome]] = {
            "ready": lambda: ready.measured(folder, options.stores, options.size, steps=steps, rounds=rounds),
            "beside": lambda: beside.measured(folder, options.sizes, steps=steps, rounds=rounds),
            "first": lambda: first.measured(folder, options.stores, options.size, rounds=rounds),
            "chunks": lambda: chunks.measured(folder, max(options.sizes), rounds=rounds),
        }
        for name in options.parts:
            outcomes[name] = parts[name]()
            outcomes[name].show(console)
    return conclude(console, outcomes, {"machine": facts, "cores": os.cpu_count()}, options.json)


def _parsed(words: Sequence[str] | None) -> argparse.Namespace:
    """Return the options; --quick changes only what was not given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--quick", action="store_true", help="few and small samples, one round: shows that it runs, proves little")
    add("--parts", type=script.names(*PARTS), default=PARTS, help=f"some of {','.join(PARTS)}")
    add("--stores", type=script.names(*STORES), default=tuple(STORES), help=f"some of {','.join(STORES)}")
    add("--size", type=script.number, help="voxels along each axis of a small sample (32)")
    add("--sizes", type=_numbers, help="of the samples that are read beside work (64,128)")
    add("--steps", type=script.number, help="of a run (100)")
    add("--rounds", type=script.number, help="times that each runs (3)")
    add("--folder", type=Path, help="where samples are written, and found again; a temporary one by default")
    add("--json", type=Path, help="write every figure to this file")
    parser.set_defaults(**FULL)
    if parser.parse_args(words).quick:
        parser.set_defaults(**QUICK)
    return parser.parse_args(words)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(script.number, text.split(",")))


if __name__ == "__main__":
    sys.exit(main())
