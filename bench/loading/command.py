"""The command line of bench/loader.py."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.harness import script
from bench.harness.findings import Finding
from bench.loading import plot, report
from bench.loading.cases import Case, all_cases
from bench.loading.contender import CONTENDERS, Contender
from bench.loading.goals import findings, other_voxels
from bench.loading.job import Job
from bench.loading.launch import time_run, weigh
from bench.loading.results import Result, Run
from bench.loading.samples import files, store
from bench.reading import machine, pagecache
from voxload.benchmark.measure.turns import Bystanders

_FULL: dict[str, Any] = {"size": 256, "samples": 16, "rounds": 3, "steady": 4}
_QUICK: dict[str, Any] = {"size": 64, "samples": 4, "rounds": 1, "steady": 2}
_STEADY = "hdf5-gzip"
"""The case in which a consumer computes, too."""
_CASES = tuple(all_cases(_FULL["size"], _FULL["samples"]))


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does."""

    folder: Path
    cases: tuple[Case, ...]
    contenders: tuple[Contender, ...]
    cores: frozenset[int]
    rounds: int
    compute: float
    steady: int
    """Epochs with a consumer that computes."""
    seed: int

    def job(self, contender: Contender, case: Case, paths: Sequence[Path]) -> Job:
        """Return what one run is told."""
        steady = self.steady if case.name == _STEADY and not contender.keeps_blocks else 0
        return Job(
            contender=contender.name,
            case=case,
            paths=tuple(map(str, paths)),
            workers=len(self.cores),
            compute=self.compute,
            steady_epochs=steady,
            seed=self.seed,
        )


def main(words: Sequence[str] | None = None) -> int:
    """Run the comparison; the exit status is 1 when something that was asked for was not reached."""
    options = _parser().parse_args(words)
    console = Console(width=max(Console().width, 132))
    with script.folder(options.folder) as folder:
        plan, missing = _plan(options, folder)
        facts = machine.describe()
        console.print(", ".join(f"{name} {value}" for name, value in facts.items()), highlight=False)
        for line in missing:
            console.print(f"[bold red]takes no part:[/] {line}", highlight=False)
        bystanders = Bystanders()
        results = []
        for case in plan.cases:
            rows = _measure(plan, case, console)
            report.show_results(console, rows, workers=len(plan.cores))
            results += rows
        others = bystanders.cores()
    found, wrong = findings(results), other_voxels(results)
    report.show_findings(console, found, wrong)
    console.print(f"others used {others:.2f} cores", highlight=False)
    if options.json:
        document = _document(results, found) | {"machine": facts, "absent": missing, "bystander_cores": others}
        options.json.write_text(json.dumps(document | {"other_voxels": wrong}, indent=1))
    if options.plot:
        plot.draw(results, options.plot, workers=len(plan.cores))
    return int(bool(wrong) or not all(finding.is_met for finding in found))


def _measure(plan: Plan, case: Case, console: Console) -> list[Result]:
    """Run all contenders of a case in turn, another one first in each round."""
    paths = store(case, plan.folder)
    pagecache.warm(file for path in paths for file in files(path))
    field = [each for each in plan.contenders if case.storage in each.storages]
    runs: dict[str, list[Run]] = {each.name: [] for each in field}
    for turn in range(plan.rounds):
        for place in range(len(field)):
            contender = field[(turn + place) % len(field)]
            job = plan.job(contender, case, paths)
            account = time_run(job, cores=plan.cores)
            run = Run(account, weigh(job, cores=plan.cores), -(-case.count // case.batch))
            runs[contender.name].append(run)
            console.print(
                f"{case.name}, round {turn + 1}: {contender.name:<15} {run.later_rate:8.2f} batches/s, first "
                f"{run.first:.3f} s, epochs {' '.join(f'{seconds:.2f}' for seconds in account.epochs)}",
                highlight=False,
            )
    return [Result(each, case, tuple(runs[each.name])) for each in field]


def _document(results: Sequence[Result], found: Sequence[Finding]) -> dict[str, Any]:
    """Return every figure as plain values."""
    return {
        "goals": [asdict(each) | {"median": each.median, "is_met": each.is_met} for each in found],
        "results": [
            {
                "case": asdict(result.case),
                "contender": result.contender.name,
                "runs": [
                    {
                        "first": run.first,
                        "rate": run.rate,
                        "later_rate": run.later_rate,
                        "peak": run.weight.peak,
                        "held": run.held,
                        "epochs": run.account.epochs,
                        "steps": run.account.steps,
                    }
                    for run in result.runs
                ],
            }
            for result in results
        ],
    }


def _present(chosen: Sequence[str]) -> tuple[tuple[Contender, ...], list[str]]:
    """Return the contenders that can take part, and why the others cannot."""
    present, missing = [], []
    for name in chosen:
        try:
            CONTENDERS[name].load()
            present.append(CONTENDERS[name])
        except (ImportError, OSError) as error:  # OSError: a shared library that needs another one
            missing.append(f"{name}: {error}")
    return tuple(present), missing


def _plan(options: argparse.Namespace, folder: Path) -> tuple[Plan, list[str]]:
    """Return what the options ask for, and who cannot take part; --quick changes only what was not given."""
    chosen = {name: value for name, value in vars(options).items() if value is not None}
    words = {**(_QUICK if options.quick else _FULL), **chosen}
    if words["size"] % 16 or words["samples"] % 2:
        raise SystemExit("--size: expected a multiple of 16; --samples: an even number")
    known = all_cases(words["size"], words["samples"])
    present, missing = _present(options.contenders)
    cores = sorted(os.sched_getaffinity(0))[: options.cores]
    plan = Plan(
        folder=folder,
        cases=tuple(known[name] for name in options.cases),
        contenders=present,
        cores=frozenset(cores),
        rounds=words["rounds"],
        compute=options.compute,
        steady=words["steady"],
        seed=options.seed,
    )
    return plan, missing


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Time voxload's loader and others on the same samples.")
    add = parser.add_argument
    contenders = tuple(CONTENDERS)
    add("--quick", action="store_true", help="few and small samples, one round: shows that it runs, proves little")
    add("--cases", type=script.names(*_CASES), default=_CASES, help=f"some of {','.join(_CASES)}")
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
    return parser
