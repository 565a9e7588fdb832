"""The command line of bench/engine.py."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from bench.engining import report
from bench.engining.hidden import hidden
from bench.engining.job import JOINS, SPATIAL
from bench.engining.launch import Worlds, worlds
from bench.engining.memory import memory
from bench.engining.outcome import Outcome
from bench.engining.profiled import profiled
from bench.engining.rounds import Kind, Pace
from bench.engining.speed import ONE_RANK, one_rank, two_ranks
from bench.harness import script
from bench.harness.findings import show_findings
from bench.reading import machine
from voxload.errors import UsageError

_DEFAULTS: dict[str, dict[str, int]] = {
    "cpu": {"size": 128, "rounds": 5, "steps": 2},
    "cuda": {"size": 256, "rounds": 5, "steps": 20},
}
_ITEMSIZE = {"cpu": 4, "cuda": 2}
"""Bytes of a number: float32 on the host, bfloat16 on a GPU."""
_ROUNDING = {"cpu": 1e-3, "cuda": 5e-2}
_SIZES = (32, 64, 128, 256, 512)
_COUNTS = tuple(str(ranks) for ranks in SPATIAL if ranks > 1)
_NAMES = ("one-rank", "two-ranks", "memory", "hidden", "profile")
_SINGLE = ("one-rank", "profile")
"""Measurements that find something in one process alone."""
_START = 120.0
_STEP = 60.0
"""Seconds that a process may take to start, and for each step over 128^3 voxels, before it is given up."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does."""

    device: str
    pace: Pace
    kind: Kind
    names: tuple[str, ...]

    @property
    def limit(self) -> float:
        """Seconds that a request may take."""
        return _START + _STEP * (self.pace.steps + 10) * max(1.0, (self.pace.size / 128) ** 3)

    def measurements(self) -> dict[str, Callable[[Worlds], Outcome]]:
        """Return what is measured, by name, in order."""
        pace, kind = self.pace, self.kind
        known: dict[str, Callable[[Worlds], Outcome]] = {
            "one-rank": lambda running: one_rank(running, pace, wanted=ONE_RANK[self.device]),
            "two-ranks": lambda running: two_ranks(running, pace, kind.joins[0]),
            "memory": lambda running: memory(running, pace, kind),
            "hidden": lambda running: hidden(running, pace, kind),
            "profile": lambda running: profiled(running, pace, kind),
        }
        return {name: known[name] for name in self.names}


def main(words: Sequence[str] | None = None) -> int:
    """Measure; the exit status is 1 when something that was asked for was not reached."""
    parser = _parser()
    options = parser.parse_args(words)
    try:
        plan = _plan(options)
    except UsageError as error:
        parser.error(str(error))
    console = Console(width=max(Console().width, 132))
    facts = machine.describe()
    console.print(
        ", ".join(f"{name} {facts[name]}" for name in ("processor", "cores", "python", "torch")), highlight=False
    )
    outcomes: dict[str, Outcome] = {}
    with worlds(plan.pace.size, plan.device, limit=plan.limit) as running:
        for name, measure in plan.measurements().items():
            outcomes[name] = measure(running)
            report.show(console, outcomes[name])
    found = [finding for outcome in outcomes.values() for finding in outcome.findings]
    wrong = [line for outcome in outcomes.values() for line in outcome.wrong]
    show_findings(console, found, wrong)
    if options.json:
        options.json.write_text(json.dumps(_document(plan, facts, outcomes), indent=1))
    return int(bool(wrong) or not all(finding.is_met for finding in found))


def _document(plan: Plan, facts: dict[str, str], outcomes: dict[str, Outcome]) -> dict[str, Any]:
    """Return everything as plain values."""
    return {
        "machine": facts,
        "plan": asdict(plan),
        "goals": [finding.document() for outcome in outcomes.values() for finding in outcome.findings],
        "measured": {
            name: {"figures": outcome.document, "others": outcome.others, "wrong": outcome.wrong}
            for name, outcome in outcomes.items()
        },
    }


def _plan(options: argparse.Namespace) -> Plan:
    """Return what the options ask for; raises UsageError where it cannot be measured here."""
    ranks = tuple(int(word) for word in options.ranks)
    if options.device == "cuda":
        ranks, names = _on_gpus(ranks, options.only)
    else:
        names = options.only
    chosen = {name: getattr(options, name) or value for name, value in _DEFAULTS[options.device].items()}
    if chosen["size"] not in _SIZES:
        raise UsageError("--size", found=str(chosen["size"]), expected=f"one of {', '.join(map(str, _SIZES))}")
    pace = Pace(**chosen, patience=options.patience, tolerance=_ROUNDING[options.device])
    return Plan(options.device, pace, Kind(ranks, options.joins, _ITEMSIZE[options.device]), names)


def _on_gpus(ranks: tuple[int, ...], names: tuple[str, ...]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the numbers of ranks and the measurements for which there are GPUs."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        raise UsageError(
            "--device cuda",
            found="no GPU that torch can use",
            expected="one for each rank",
            remedy="use --device cpu, or a build of torch for CUDA on a machine with a GPU",
        )
    fitting = tuple(number for number in ranks if number <= count)
    kept = tuple(name for name in names if name in _SINGLE or (fitting and (name != "two-ranks" or count > 1)))
    if not kept:
        raise UsageError("--only " + ",".join(names), found=f"{count} GPU", expected="a GPU for each rank")
    return fitting, kept


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Time and weigh CosmoFlow through the engine and without it.")
    add = parser.add_argument
    add("--size", type=script.number, help="voxels along each axis (128; 256 on a GPU)")
    add("--rounds", type=script.number, help="times that each trial has its turn (5)")
    add("--steps", type=script.number, help="steps of a turn (2; 20 on a GPU)")
    add("--ranks", type=script.names(*_COUNTS), default=("2",), help="for memory, hidden and profile (2)")
    add(
        "--joins",
        type=script.names(*JOINS),
        default=JOINS[:3],
        help=f"some of {','.join(JOINS)}; the first is timed",
    )
    add("--only", type=script.names(*_NAMES), default=_NAMES, help=f"some of {','.join(_NAMES)}", metavar="NAME")
    add("--device", choices=tuple(_DEFAULTS), default="cpu", help="what computes (cpu)")
    add("--patience", type=float, default=0.0, help="seconds to wait for others on the machine, and repeat (0)")
    add("--json", type=Path, help="write every figure to this file")
    return parser
