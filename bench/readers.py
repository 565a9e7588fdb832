"""Claim: reading a block costs what its bytes cost, and less than with any other reader.

Every contender reads the same boxes of the same file, one after the other in each round, into a buffer that is
reused; the table gives medians and how many times faster voxload is. Peers are set up as those who know them best
would: several settings are tried before the clock runs and the fastest is kept, by name. Every result is compared
with the voxels that were generated before it is timed, and what the page cache holds is asked of the system. The exit
status is 1 when a contender returns other voxels.

    python bench/readers.py --quick
    python bench/readers.py --folder DATA --json readers.json --plot readers.png
    python bench/readers.py --formats hdf5-gzip --cases octant,halo --dtypes int16 --chunks 64
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness import machine, script
from bench.harness.samples import KINDS, LAYOUTS, Sample, buffer_like
from bench.reading import cases, plot, report
from bench.reading.clock import Limits, measure
from bench.reading.contender import Job
from bench.reading.goals import all_goals, goals_to_json
from bench.reading.hdf5_processes import CREW
from bench.reading.peers import PEERS, absent, entries
from bench.reading.results import Result

_QUICK: dict[str, Any] = {"size": 256, "rounds": 5, "budget": 2.0, "dtypes": ("int16",), "chunks": (64,)}
_FULL: dict[str, Any] = {"size": 512, "rounds": 5, "budget": 8.0, "dtypes": tuple(KINDS), "chunks": (64, 128)}


def _numbers(text: str) -> tuple[int, ...]:
    """Parse comma-separated numbers of one or more."""
    return tuple(map(script.number, text.split(",")))


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    """Return what the command line asks for; --quick changes only what was not given."""
    parser = argparse.ArgumentParser(description="Time voxload's readers and others on the same files.")
    add = parser.add_argument
    add("--quick", action="store_true", help="256^3, int16, chunks of 64^3, few rounds")
    add("--size", type=script.number, help="voxels along each axis (512)")
    add("--formats", type=script.names(*LAYOUTS), default=tuple(LAYOUTS), help=f"some of {','.join(LAYOUTS)}")
    add("--dtypes", type=script.names(*KINDS), help=f"some of {','.join(KINDS)}")
    add("--chunks", type=_numbers, help="extents of chunks (64,128)")
    add("--cases", type=script.names(*cases.NAMES), default=cases.NAMES, help=f"some of {','.join(cases.NAMES)}")
    add("--peers", type=script.names(*PEERS), default=PEERS, help=f"some of {','.join(PEERS)}")
    add("--threads", type=_numbers, default=(1, 2), help="numbers of threads, and of h5py processes (1,2)")
    add("--rounds", type=script.number, help="rounds at least (5); more follow until medians are sure or time is up")
    add("--budget", type=float, help="seconds for one table after which no further round begins (8)")
    add("--tries", type=script.number, default=3, help="times a table at most while others are busy (3)")
    add("--folder", type=Path, help="where samples are written, and found again; a temporary one by default")
    add("--json", type=Path, help="write every time to this file")
    add("--plot", type=Path, help="draw the ratios into this PNG file")
    parser.set_defaults(**(_QUICK if parser.parse_args(words).quick else _FULL))
    options = parser.parse_args(words)
    if options.size < max(2 * max(options.chunks), cases.CROP):
        parser.error(f"--size {options.size}: expected at least two chunks along each axis")
    return options


def main(words: Sequence[str] | None = None) -> int:
    """Run the comparison."""
    options = _options(words)
    console = Console(width=max(Console().width, 118))
    facts, missing = machine.describe(), absent(options.peers)
    console.print(", ".join(f"{name} {value}" for name, value in facts.items()), highlight=False)
    for line in missing:
        console.print(f"[bold red]takes no part:[/] {line}", highlight=False)
    with script.folder(options.folder) as folder, CREW:
        results = list(_run(options, folder, console))
    report.show_overview(console, results)
    goals = all_goals(options.formats)
    report.show_goals(console, goals, results)
    if options.json:
        document: dict[str, Any] = {"machine": facts, "absent": missing, "goals": goals_to_json(goals, results)}
        document["tables"] = [result.to_json() for result in results]
        options.json.write_text(json.dumps(document, indent=1))
    if options.plot:
        plot.draw(results, options.plot)
    return int(any(result.wrong for result in results))


def _run(options: argparse.Namespace, folder: Path, console: Console) -> Iterator[Result]:
    """Measure and print one table after the other."""
    known = cases.all_cases(options.size)
    for sample in _samples(options, folder):
        for case in (known[name] for name in options.cases):
            expected = np.concatenate([sample.voxels(box) for box in case.boxes])
            job = Job(sample, case, buffer_like(expected), expected, options.threads)
            limits = Limits(options.rounds, options.budget, options.tries)
            result = measure(job, entries(job, options.peers), limits)
            report.show_result(console, result, sample.title)
            yield result


def _samples(options: argparse.Namespace, folder: Path) -> Iterator[Sample]:
    """Yield each sample; contiguous ones once, not for every extent of chunks."""
    for dtype in options.dtypes:
        for layout in options.formats:
            for chunk in options.chunks if LAYOUTS[layout].is_chunked else (None,):
                sample = Sample(folder, layout, dtype, options.size, chunk)
                sample.write()
                yield sample
                if not options.folder:
                    shutil.rmtree(sample.place)


if __name__ == "__main__":
    sys.exit(main())
