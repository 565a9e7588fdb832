"""The command line of bench/readers.py."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from bench.harness import script
from bench.reading import cases, entrants, machine, plot, report
from bench.reading.clock import Limits, measure
from bench.reading.contender import Job
from bench.reading.fields import DTYPES, Field, buffer_like, load_field
from bench.reading.goals import all_goals, goals_to_json
from bench.reading.peers.hdf5_processes import CREW
from bench.reading.results import Result
from bench.reading.samples import LAYOUTS, Layout, Sample, store

_QUICK: dict[str, Any] = {"size": 256, "rounds": 5, "budget": 2.0, "dtypes": ("int16",), "chunks": (64,)}
_FULL: dict[str, Any] = {"size": 512, "rounds": 5, "budget": 8.0, "dtypes": DTYPES, "chunks": (64, 128)}


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does."""

    folder: Path
    """Where samples are."""
    keeps_samples: bool
    """Whether they stay for the next run."""
    size: int
    """Extent of the samples."""
    layouts: tuple[Layout, ...]
    """Storage formats."""
    dtypes: tuple[str, ...]
    """Types of voxels."""
    chunks: tuple[int, ...]
    """Extents of chunks."""
    cases: tuple[cases.Case, ...]
    """What is read."""
    peers: tuple[str, ...]
    """Whom to compare with."""
    threads: tuple[int, ...]
    """Numbers of threads."""
    limits: Limits
    """How long a table may take."""

    def samples(self) -> Iterator[tuple[Sample, Field]]:
        """Yield each sample with the field that it holds; contiguous ones once, not for every chunk extent."""
        for dtype in self.dtypes:
            source = load_field(self.folder, dtype, self.size)
            for layout in self.layouts:
                for chunk in self.chunks if layout.is_chunked else self.chunks[:1]:
                    sample = store(layout, source, chunk=chunk)
                    yield sample, source[1]
                    if not self.keeps_samples and layout.family != "npy":
                        sample.remove()


def main(words: Sequence[str] | None = None) -> int:
    """Run the comparison; the exit status is 1 when a contender returned wrong voxels."""
    options = _parser().parse_args(words)
    console = Console(width=max(Console().width, 118))
    with tempfile.TemporaryDirectory(prefix="voxload-bench-") as temporary:
        plan = _plan(options, Path(temporary))
        facts = machine.describe()
        console.print(", ".join(f"{name} {value}" for name, value in facts.items()), highlight=False)
        missing = entrants.absent(plan.peers)
        for line in missing:
            console.print(f"[bold red]takes no part:[/] {line}", highlight=False)
        try:
            results = list(_run(plan, console))
        finally:
            CREW.stop()
    report.show_overview(console, results)
    names = [layout.name for layout in plan.layouts]
    plain = [layout.name for layout in plan.layouts if not layout.is_compressed]
    goals = all_goals(names, plain)
    report.show_goals(console, goals, results)
    if options.json:
        document: dict[str, Any] = {"machine": facts, "absent": missing, "goals": goals_to_json(goals, results)}
        document["tables"] = [result.to_json() for result in results]
        options.json.write_text(json.dumps(document, indent=1))
    if options.plot:
        plot.draw(results, options.plot)
    return int(any(result.measurement.wrong for result in results))


def _run(plan: Plan, console: Console) -> Iterator[Result]:
    """Measure and print one table after the other."""
    for sample, field in plan.samples():
        for case in plan.cases:
            expected = np.stack([field[box.slices] for box in case.boxes])
            job = Job(sample, case, buffer_like(expected), expected, plan.threads)
            result = Result.of(job, measure(job, entrants.entries(job, plan.peers), plan.limits))
            report.show_result(console, result, sample.title)
            yield result


def _numbers(text: str) -> tuple[int, ...]:
    """Parse comma-separated numbers of one or more."""
    numbers = tuple(int(part) for part in text.split(","))
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError("numbers of 1 or more")
    return numbers


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Time voxload's readers and others on the same files.")
    add = parser.add_argument
    add("--quick", action="store_true", help="256^3, int16, chunks of 64^3, few rounds")
    add("--size", type=int, help="voxels along each axis (512)")
    add("--formats", type=script.names(*LAYOUTS), default=tuple(LAYOUTS), help=f"some of {','.join(LAYOUTS)}")
    add("--dtypes", type=script.names(*DTYPES), help=f"some of {','.join(DTYPES)}")
    add("--chunks", type=_numbers, help="extents of chunks (64,128)")
    add("--cases", type=script.names(*cases.NAMES), default=cases.NAMES, help=f"some of {','.join(cases.NAMES)}")
    add(
        "--peers",
        type=script.names(*entrants.PEERS),
        default=entrants.PEERS,
        help=f"some of {','.join(entrants.PEERS)}",
    )
    add("--threads", type=_numbers, default=(1, 2), help="numbers of threads, and of h5py processes (1,2)")
    add("--rounds", type=int, help="rounds at least (5); more follow until medians are sure or time is up")
    add("--budget", type=float, help="seconds for one table after which no further round begins (8)")
    add("--tries", type=int, default=3, help="times a table at most while others are busy, keeps the quietest (3)")
    add("--folder", type=Path, help="where samples are written, and found again; a temporary one by default")
    add("--json", type=Path, help="write every time to this file")
    add("--plot", type=Path, help="draw the ratios into this PNG file")
    return parser


def _plan(options: argparse.Namespace, temporary: Path) -> Plan:
    """Return what the options ask for; --quick changes only what was not given."""
    chosen = {name: value for name, value in vars(options).items() if value is not None}
    words = {**(_QUICK if options.quick else _FULL), **chosen}
    if words["size"] < 2 * max(words["chunks"]) or words["size"] < cases.CROP:
        raise SystemExit(f"--size {words['size']}: expected at least two chunks along each axis")
    if options.folder:
        options.folder.mkdir(parents=True, exist_ok=True)
    known = cases.all_cases(words["size"])
    return Plan(
        folder=options.folder or temporary,
        keeps_samples=options.folder is not None,
        size=words["size"],
        layouts=tuple(LAYOUTS[name] for name in options.formats),
        dtypes=words["dtypes"],
        chunks=words["chunks"],
        cases=tuple(known[name] for name in options.cases),
        peers=options.peers,
        threads=options.threads,
        limits=Limits(words["rounds"], words["budget"], max(1, options.tries)),
    )
