"""Claim: the drop-in loader keeps the cores decoding, in less memory, from the first batch on and across epochs.

Every contender loads the same blocks of the same samples for some epochs on the same cores, each run in a process of
its own, in turns. Peers are set up as those who know them best would: files stay open, chunk caches fit, buffers are
reused, workers persist. First a run is timed flat out, then one with a consumer that computes for some time in each
step. The clock starts where the loader is built: everything is imported by then, and peers have been told what each
sample is, which voxload finds out itself. The memory is that of all processes, shared pages counted once, and looked at
every few milliseconds in a run beside the one that is timed. In one more, not timed, all blocks are compared with the
voxels that were generated. The exit status is 1 when something that was asked for was not reached, or a contender gave
other voxels.

    python bench/loader.py --quick
    python bench/loader.py --folder DATA --json loader.json --plot loader.png
    python bench/loader.py --cases hdf5-gzip --contenders voxload,h5py-workers --rounds 5
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness import script
from bench.harness.children import Child, started
from bench.harness.findings import Outcome, conclude
from bench.harness.memory import MemoryWatch, held_by
from bench.loading import plot
from bench.loading.cases import CONTENDERS, MAIN, Case, Contender, all_cases
from bench.loading.results import Run, Runs, epoch_seconds, outcome, step_seconds
from voxload.benchmark.generate.generate import generate
from voxload.benchmark.loaders.registry import named, prepare
from voxload.benchmark.measure.document import record_of
from voxload.benchmark.measure.record import Record
from voxload.benchmark.measure.turns import in_turns
from voxload.benchmark.run.hosts import describe_host
from voxload.benchmark.workload.workload import Emulation, Length, Workload
from voxload.errors import UsageError

FULL = {"size": 256, "samples": 16, "rounds": 3, "steady": 4}
QUICK = {"size": 64, "samples": 4, "rounds": 1, "steady": 2}
CASES = tuple(all_cases(FULL["size"], FULL["samples"]))
PACKAGES = ("zarrs", "tensorstore", "monai", "nvidia-dali-cuda120")
"""Of contenders, whose versions are told."""
FACTS = ("processor", "cores", "system", "python", "versions")
"""Of the machine, that are printed; a file has all of them."""
CHILD = "bench.loading.child:ready"
FEW = Length(epochs=2)
"""Of runs in which blocks are compared: what is kept is used in the second one."""


def main(words: Sequence[str] | None = None) -> int:
    """Run the comparison; return 1 when something that was asked for was not reached."""
    options = _parsed(words)
    console = Console(width=max(Console().width, 132))
    known = all_cases(options.size, options.samples)
    results: dict[Case, Runs] = {}
    outcomes: dict[str, Outcome] = {}
    with script.folder(options.folder) as folder, _on_cores(options.cores) as threads:
        present, absent = _present(options.contenders)
        facts = describe_host(str(folder), PACKAGES)
        console.print(", ".join(f"{name} {facts[name]}" for name in FACTS), highlight=False)
        for line in absent:
            console.print(f"[bold red]takes no part:[/] {line}", highlight=False)
        for case in (known[name] for name in options.cases):
            told = _told(case, present, folder, threads=threads, seed=options.seed)
            results[case] = _measured(case, told, options)
            outcomes[case.name] = outcome(case, results[case], threads=threads)
            outcomes[case.name].show(console)
    if options.plot:
        plot.draw(results, options.plot, threads=threads)
    return conclude(console, outcomes, {"machine": facts, "absent": absent}, options.json)


def _told(
    case: Case, present: Sequence[Contender], folder: Path, *, threads: int, seed: int
) -> dict[Contender, Workload]:
    """Write what is not there of a case's samples, and return what each contender that can load them is told."""
    field = [each for each in present if case.plan.storage.format in each.formats]
    if not field:
        raise SystemExit(f"--contenders: none that is here loads {case.name}")
    samples = folder / f"{case.name}-{case.plan.samples}x{case.plan.spatial[0]}"
    generate(samples, case.plan, workers=threads)
    os.sync()  # writing back is no part of what is timed
    return {each: case.workload(each, samples, threads=threads, seed=seed) for each in field}


def _measured(case: Case, told: Mapping[Contender, Workload], options: argparse.Namespace) -> Runs:
    """Run all contenders of a case in turns."""

    def run(contender: Contender) -> Run:
        workload = told[contender]
        # First of all: what voxload compiles once on a machine is compiled, and files are in memory afterwards.
        base, peak = _weighed(replace(workload, length=Length(case.weighed_epochs)))
        steps: tuple[float, ...] = ()
        with started(CHILD, workload.to_json()) as child:
            record = _loaded(child, workload)
            if case.name == MAIN and not contender.keeps_blocks:
                computing = Emulation("sleep", str(options.compute))
                steps = step_seconds(
                    _loaded(child, replace(workload, length=Length(options.steady), emulation=computing))
                )
            wrong = _loaded(child, replace(workload, length=FEW, verify=True)).wrong
        batches = len(record.epochs[0].steps.begin)
        found = Run(record.first_batch, epoch_seconds(record), batches, steps, base=base, peak=peak, wrong=wrong)
        seconds = " ".join(f"{each:.2f}" for each in found.epochs)
        rate, first = f"{found.later_rate:8.2f} batches/s", f"first {found.first:.3f} s"
        print(f"{case.name}: {contender.name:<15} {rate}, {first}, epochs {seconds}", flush=True)
        return found

    return in_turns(tuple(told), options.rounds, run)


def _weighed(workload: Workload) -> tuple[int, int]:
    """Return the bytes that a run's processes hold before its loader is built, and the most that they hold later."""
    with started(CHILD, workload.to_json()) as child:
        base = held_by(child.pid)
        watch = MemoryWatch(child.pid)
        try:
            _loaded(child, workload)
        finally:
            peak = watch.stop()
    return base, peak


def _loaded(child: Child, workload: Workload) -> Record:
    """Have a process run a workload, and return what it saw."""
    return record_of(child.ask(workload.to_json()))


def _present(chosen: Sequence[str]) -> tuple[list[Contender], list[str]]:
    """Return the contenders that can take part, and why the others cannot."""
    present, absent = [], []
    for name in chosen:
        try:
            prepare(named(CONTENDERS[name].loader))
            present.append(CONTENDERS[name])
        except (UsageError, ImportError, OSError) as error:  # OSError: a shared library that needs another one
            absent.append(f"{name}: {error}")
    return present, absent


@contextmanager
def _on_cores(count: int) -> Iterator[int]:
    """Let this thread, and all that it starts, have so many cores at most, and yield how many they are."""
    before = os.sched_getaffinity(0)
    chosen = sorted(before)[:count]
    os.sched_setaffinity(0, chosen)
    try:
        yield len(chosen)
    finally:
        os.sched_setaffinity(0, before)


def _parsed(words: Sequence[str] | None) -> argparse.Namespace:
    """Return the options; --quick changes only what was not given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    contenders = tuple(CONTENDERS)
    add("--quick", action="store_true", help="few and small samples, one round: shows that it runs, proves little")
    add("--cases", type=script.names(*CASES), default=CASES, help=f"some of {','.join(CASES)}")
    add("--contenders", type=script.names(*contenders), default=contenders, help=f"some of {','.join(contenders)}")
    add("--size", type=script.number, help="voxels along each axis (256)")
    add("--samples", type=script.number, help="samples (16)")
    add("--rounds", type=script.number, help="times that each contender runs (3)")
    add("--cores", type=script.number, default=2, help="cores, and threads or worker processes (2)")
    add("--compute", type=float, default=0.06, help="seconds of a step of the consumer that computes (0.06)")
    add("--steady", type=script.number, help="epochs with that consumer (4)")
    add("--seed", type=int, default=7, help="seed of the shuffling (7)")
    add("--folder", type=Path, help="where samples are written, and found again; a temporary one by default")
    add("--json", type=Path, help="write every figure to this file")
    add("--plot", type=Path, help="draw them into this PNG file")
    parser.set_defaults(**FULL)
    if parser.parse_args(words).quick:
        parser.set_defaults(**QUICK)
    options = parser.parse_args(words)
    if options.size % 16 or options.samples % 2:
        parser.error("--size: expected a multiple of 16; --samples: an even number")
    return options


if __name__ == "__main__":
    sys.exit(main())
