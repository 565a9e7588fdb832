"""The command line of bench/prefetch.py."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.harness import script
from bench.prefetching import plot, report
from bench.prefetching.contender import Contender, Recipe
from bench.prefetching.forecast import GROUPS, Link, forecast
from bench.prefetching.goals import Finding, findings
from bench.prefetching.job import Job
from bench.prefetching.launch import RANKS, launch
from bench.prefetching.results import Result, Run
from bench.prefetching.room import TierRoom
from bench.prefetching.samples import FORMATS, Samples
from bench.prefetching.served import tally
from bench.reading import machine
from tests.support.throttle.process import ThrottledStorage, throttled_storage
from voxload.benchmark.measure.turns import Bystanders
from voxload.errors import UsageError
from voxload.units import parse_bytes

_FIELD = "torch,plain,lru,clairvoyant,clairvoyant/half,clairvoyant/train"
_FULL: dict[str, Any] = {"samples": 32, "size": 80, "bandwidth": "16MB", "rounds": 3}
_QUICK: dict[str, Any] = {"samples": 16, "size": 48, "bandwidth": "4MB", "rounds": 1}
_START = 300.0
"""Seconds that ranks may take beside what the storage takes to serve every epoch in full, twice over."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does."""

    samples: Samples
    recipe: Recipe
    link: Link
    contenders: tuple[Contender, ...]
    computes: tuple[float, float]
    """Seconds of a step, and of one that trains."""
    rounds: int

    @property
    def limit(self) -> float:
        """Seconds after which a run is given up."""
        once = self.samples.nbytes / self.link.bandwidth
        steps = self.recipe.epochs * -(-self.samples.count // (GROUPS * self.recipe.batch))
        return _START + 2 * (once * self.recipe.epochs + steps * max(self.computes))

    def compute(self, contender: Contender) -> float:
        """Return the seconds of a contender's step."""
        return self.computes[contender.is_train]

    def memory(self, contender: Contender) -> int:
        """Return the bytes of the node's memory tier."""
        blocks = contender.rank_blocks(self.samples.count, GROUPS)
        return RANKS * TierRoom(blocks, self.samples.block_bytes).file_bytes

    @property
    def title(self) -> str:
        """What tables and plots say of it."""
        samples, recipe = self.samples, self.recipe
        per_group = RANKS // GROUPS
        return (
            f"{samples.count} samples of 4 x {samples.size}^3 int16 ({samples.format}), {recipe.epochs} epochs, "
            f"{GROUPS} groups of {per_group} ranks, batches of {recipe.batch}, {recipe.threads} threads or workers a "
            f"rank; storage: {self.link.bandwidth / 1e6:g} MB/s for all, {self.link.latency * 1e3:g} ms a request"
        )


def main(words: Sequence[str] | None = None) -> int:
    """Run the comparison; the exit status is 1 when something that was asked for was not reached."""
    options = _parser().parse_args(words)
    console = Console(width=max(Console().width, 132))
    with script.folder(options.folder) as folder:
        plan = _plan(options, folder)
        facts = machine.describe()
        console.print(", ".join(f"{name} {facts[name]}" for name in ("processor", "cores", "python")), highlight=False)
        plan.samples.write()
        with throttled_storage(folder, bandwidth=plan.link.bandwidth, latency=plan.link.latency) as storage:
            results = _measure(plan, storage, console)
    found = findings({result.contender.name: result for result in results})
    report.show_results(console, results, title=plan.title, data_bytes=plan.samples.nbytes)
    report.show_findings(console, found)
    if options.json:
        options.json.write_text(json.dumps(_document(plan, facts, results, found), indent=1))
    if options.plot:
        plot.draw(results, options.plot, title=plan.title)
    return int(not all(finding.is_met for finding in found))


def _measure(plan: Plan, storage: ThrottledStorage, console: Console) -> list[Result]:
    """Run all contenders in turn, another one first in each round."""
    # Before anything is timed: what policies compile once on a machine, they compile here.
    forecasts = {
        contender.name: forecast(contender, plan.samples, plan.recipe, plan.link, compute=plan.compute(contender))
        for contender in plan.contenders
    }
    runs: dict[str, list[Run]] = {contender.name: [] for contender in plan.contenders}
    count = len(plan.contenders)
    for turn in range(plan.rounds):
        for place in range(count):
            contender = plan.contenders[(turn + place) % count]
            run = _run(plan, contender, storage)
            runs[contender.name].append(run)
            console.print(
                f"round {turn + 1}: {contender.name:<20} {run.seconds:7.2f} s   epochs "
                + " ".join(f"{seconds:.2f}" for seconds in run.epochs),
                highlight=False,
            )
    return [
        Result(contender, plan.compute(contender), forecasts[contender.name], tuple(runs[contender.name]))
        for contender in plan.contenders
    ]


def _run(plan: Plan, contender: Contender, storage: ThrottledStorage) -> Run:
    job = Job(
        contender=contender.name,
        urls=tuple(f"{storage.url}/{name}" for name in plan.samples.names),
        warm_up=str(plan.samples.warm_up),
        recipe=plan.recipe,
        compute=plan.compute(contender),
        memory=plan.memory(contender),
    )
    storage.forget()
    bystanders = Bystanders()
    accounts = launch(job, seconds=plan.limit)
    return Run(tuple(accounts), tally(storage.served(), plan.samples.extents()), bystanders.cores())


def _document(plan: Plan, facts: dict[str, str], results: Sequence[Result], found: Sequence[Finding]) -> dict[str, Any]:
    """Return everything as plain values."""
    return {
        "machine": facts,
        "plan": {
            "title": plan.title,
            "data_bytes": plan.samples.nbytes,
            **asdict(plan.recipe),
            **asdict(plan.link),
        },
        "goals": [
            {"name": each.name, "wanted": each.wanted, "measured": each.figures, "is_met": each.is_met}
            for each in found
        ],
        "contenders": [
            {
                "name": result.contender.name,
                "compute": result.compute,
                "memory": plan.memory(result.contender),
                "forecast": asdict(result.forecast),
                "runs": [
                    {
                        "seconds": run.seconds,
                        "epochs": run.epochs,
                        "wait": run.wait,
                        "stall": run.stall,
                        "bystanders": run.bystanders,
                        "storage": asdict(run.tally),
                        "ranks": [asdict(account) for account in run.accounts],
                    }
                    for run in result.runs
                ],
            }
            for result in results
        ],
    }


def _contenders(text: str) -> tuple[Contender, ...]:
    try:
        return tuple(Contender.parse(name) for name in text.split(","))
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Time five epochs on slow storage, with and without a cache.")
    add = parser.add_argument
    add("--quick", action="store_true", help="few and small samples, one round: shows that it runs, proves little")
    add("--contenders", type=_contenders, default=_FIELD, help=f"with commas; policies too ({_FIELD})")
    add("--format", choices=FORMATS, default="zarr", help="how samples are stored (zarr)")
    add("--samples", type=script.number, help="samples (32)")
    add("--size", type=script.number, help="voxels along each axis, a multiple of 4 (80)")
    add("--epochs", type=script.number, default=5, help="epochs (5)")
    add("--batch", type=script.number, default=2, help="samples of a batch (2)")
    add("--threads", type=script.number, default=2, help="threads, or torch's worker processes, of each rank (2)")
    add("--seed", type=int, default=7, help="seed of the shuffling (7)")
    add("--bandwidth", help="bytes per second that all ranks share (16MB)")
    add("--latency", type=float, default=0.005, help="seconds that each request waits (0.005)")
    add("--compute", type=float, default=0.02, help="seconds of a step (0.02)")
    add("--train", type=float, default=0.1, help="seconds of a step of contenders with /train (0.1)")
    add("--rounds", type=script.number, help="times that each contender runs (3)")
    add("--folder", type=Path, help="where samples are written, and found again; a temporary one by default")
    add("--json", type=Path, help="write every figure to this file")
    add("--plot", type=Path, help="draw the times into this PNG file")
    return parser


def _plan(options: argparse.Namespace, folder: Path) -> Plan:
    """Return what the options ask for; --quick changes only what was not given."""
    chosen = {name: value for name, value in vars(options).items() if value is not None}
    words = {**(_QUICK if options.quick else _FULL), **chosen}
    if words["size"] % 4:
        raise SystemExit(f"--size {words['size']}: expected a multiple of 4, so that no two blocks share a chunk")
    return Plan(
        samples=Samples(folder, options.format, words["samples"], words["size"]),
        recipe=Recipe(batch=options.batch, epochs=options.epochs, threads=options.threads, seed=options.seed),
        link=Link(float(parse_bytes(words["bandwidth"])), options.latency),
        contenders=options.contenders,
        computes=(options.compute, options.train),
        rounds=words["rounds"],
    )
