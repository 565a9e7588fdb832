"""The command line of bench/convert.py."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console

from bench.converting.copying import copying
from bench.converting.layout import layout
from bench.converting.rechunking import rechunking
from bench.converting.samples import make_cubes
from bench.converting.task import Task
from bench.engining.outcome import Outcome
from bench.engining.report import show
from bench.harness import script
from bench.harness.findings import show_findings
from bench.reading import machine
from voxload.benchmark.measure.turns import Bystanders

_TASKS: Mapping[str, Callable[[Path, Task], Outcome]] = {"copy": copying, "rechunk": rechunking, "layout": layout}


def main(words: Sequence[str] | None = None) -> int:
    """Measure; the exit status is 1 when something that was asked for was not reached."""
    options = _parser().parse_args(words)
    task = Task(options.extent, options.rounds, options.cold, options.compression, options.rechunker)
    console = Console(width=max(Console().width, 150))
    facts = machine.describe()
    console.print(
        ", ".join(f"{name} {facts[name]}" for name in ("processor", "cores", "python", "zarr", "h5py")), highlight=False
    )
    outcomes: dict[str, Outcome] = {}
    with script.folder(options.folder) as folder:
        for name in options.task:
            source = make_cubes(folder, options.cubes if name == "copy" else 1, options.extent)
            others = Bystanders()
            outcome = _TASKS[name](source, task)
            outcomes[name] = replace(outcome, others=(others.cores(),))
            show(console, outcomes[name])
    found = [finding for outcome in outcomes.values() for finding in outcome.findings]
    show_findings(console, found)
    if options.json:
        document = {
            "machine": facts,
            "task": asdict(task) | {"cubes": options.cubes},
            "goals": [one.document() for one in found],
            "measured": {
                name: {"figures": outcome.document, "others": outcome.others} for name, outcome in outcomes.items()
            },
        }
        options.json.write_text(json.dumps(document, indent=1))
    return int(not all(finding.is_met for finding in found))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Time and weigh the conversion of raw universes.")
    add = parser.add_argument
    add("--task", type=script.names(*_TASKS), default=("copy",), help=f"some of {','.join(_TASKS)} (copy)")
    add("--cubes", type=script.number, default=8, help="universes of the copy (8)")
    add("--extent", type=script.number, default=512, help="voxels along each axis (512)")
    add("--rounds", type=script.number, default=5, help="turns of each contender (5)")
    add("--compression", choices=("lz4", "zstd"), default="lz4", help="codec of Zarr chunks (lz4)")
    add("--cold", action="store_true", help="empty the page cache of the sources before each turn")
    add("--folder", type=Path, help="where universes are made, and kept; a temporary one if not given")
    add("--rechunker", default="", metavar="PYTHON", help="a Python that has rechunker and a zarr before 3")
    add("--json", type=Path, help="write every figure to this file")
    return parser
