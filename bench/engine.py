"""Claim: a network costs nothing on one block, and on blocks of P ranks it takes about a P-th of time and memory.

CosmoFlow runs with batch 1 in processes of one thread each, in turns; every figure is a ratio of the same round, of the
shortest of some steps: whatever else the machine does only lengthens steps. Asked for are at most 1.03 times plain
torch's time through the engine on one rank (1.02 on a GPU), at least 1.7 times the speed of one process on two ranks,
and at most 1.1 times a P-th of one process's activations and the halos. Beside them are printed what of a two-rank step
goes where, what the messages of each exchange and each way of joining halos cost beyond a step without any, and a
profile. Results are compared: what is timed must have predicted the same, and received what was planned. The exit
status is 1 when something that was asked for was not reached, 2 when it cannot be measured here. Where others use the
machine too, --patience waits for them, and repeats rounds that they disturbed.

    python bench/engine.py
    python bench/engine.py --only two-ranks --joins auto --patience 600
    python bench/engine.py --only memory,hidden --ranks 2,4,8 --json engine.json
    python bench/engine.py --device cuda --size 256
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.engining.measurements import memory, one_rank, profiled, two_ranks
from bench.engining.messages import hidden
from bench.engining.rounds import Kind, Pace
from bench.engining.world import JOINS, SPATIAL, Worlds, worlds
from bench.harness import machine, script
from bench.harness.findings import Outcome, conclude
from voxload.errors import UsageError
from voxload.launch.devices import check_there

_DEFAULTS: dict[str, dict[str, int]] = {
    "cpu": {"size": 128, "rounds": 5, "steps": 4},
    "cuda": {"size": 256, "rounds": 5, "steps": 20},
}
_ITEMSIZE = {"cpu": 4, "cuda": 2}
"""Bytes of a number: float32 on the host, bfloat16 on a GPU."""
_ROUNDING = {"cpu": 1e-3, "cuda": 5e-2}
_SIZES = (32, 64, 128, 256, 512)
_COUNTS = tuple(str(ranks) for ranks in SPATIAL if ranks > 1)
_MEASUREMENTS: dict[str, Callable[[Worlds, Pace, Kind], Outcome]] = {
    "one-rank": lambda running, pace, _: one_rank(running, pace),
    "two-ranks": lambda running, pace, kind: two_ranks(running, pace, kind.joins[0]),
    "memory": memory,
    "hidden": hidden,
    "profile": profiled,
}
_NAMES = tuple(_MEASUREMENTS)
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
        for name in plan.names:
            outcomes[name] = _MEASUREMENTS[name](running, plan.pace, plan.kind)
            outcomes[name].show(console)
    return conclude(console, outcomes, {"machine": facts, "plan": asdict(plan)}, options.json)


def _plan(options: argparse.Namespace) -> Plan:
    """Return what the options ask for; raises UsageError where it cannot be measured here."""
    check_there(options.device, ranks=1)
    ranks, names = tuple(int(word) for word in options.ranks), options.only
    if options.device == "cuda":
        ranks, names = _on_gpus(ranks, names)
    chosen = {name: getattr(options, name) or value for name, value in _DEFAULTS[options.device].items()}
    if chosen["size"] not in _SIZES:
        raise UsageError("--size", found=str(chosen["size"]), expected=f"one of {', '.join(map(str, _SIZES))}")
    pace = Pace(**chosen, patience=options.patience, tolerance=_ROUNDING[options.device])
    return Plan(options.device, pace, Kind(ranks, options.joins, _ITEMSIZE[options.device]), names)


def _on_gpus(ranks: tuple[int, ...], names: tuple[str, ...]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the numbers of ranks and the measurements for which there are GPUs."""
    count = torch.cuda.device_count()
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
    add("--steps", type=script.number, help="steps of a turn (4; 20 on a GPU)")
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


if __name__ == "__main__":
    sys.exit(main())
