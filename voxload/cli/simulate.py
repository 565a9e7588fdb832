"""``voxload simulate``: what policies of keeping and prefetching blocks would cost on a machine."""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Never

import numpy as np
import typer
from tqdm import tqdm

from voxload.cli.options import check_picture, parse_names
from voxload.cli.outcomes import Panel, draw_policies, policy_table, seconds_unit
from voxload.cli.terminal import Screen, count_bar
from voxload.errors import UsageError
from voxload.prefetch import machines, policies
from voxload.prefetch.line import Line
from voxload.prefetch.order.replays import shuffled_orders
from voxload.prefetch.policies.protocol import Policy
from voxload.prefetch.simulate import Machine, Model, Outcome, Workload, optimum_storage_bytes, run
from voxload.prefetch.simulation.workload import regimes as regimes_of
from voxload.units import format_bytes, parse_bytes

EPILOG = (
    "Example: voxload simulate --machine lassen --samples 262144 --sample-bytes 16MB --groups 1024 --batch 16 "
    "--epochs 10 --plot policies.png"
)
"""Shown at the end of the command's help."""

EVENTS_LIMIT = 10_000
"""Accesses up to which every transfer is simulated unless told otherwise: some seconds for each policy."""
_REGIME_SAMPLES = 4096


class ModelChoice(enum.Enum):
    """Values of ``--model``."""

    AUTO = "auto"
    EVENTS = "events"
    STEPS = "steps"


class LocalityChoice(enum.Enum):
    """Values of ``--locality``."""

    NONE = "none"
    BATCH = "batch"
    EPOCHS = "epochs"


@dataclass(frozen=True, slots=True)
class _Case:
    """One workload, and what all policies made of it."""

    name: str
    machine: Machine
    workload: Workload
    outcomes: tuple[Outcome, ...]
    optimum: int
    """Least bytes of storage for all lines."""


@dataclass(frozen=True, slots=True)
class _Options:
    """What describes a workload on the command line."""

    samples: int
    sample_bytes: int
    stored_bytes: int
    groups: int
    blocks: int
    batch: int
    epochs: int
    seed: int
    compute_seconds: float | None
    locality: str | None


def simulate(
    *,
    machine: Annotated[
        str, typer.Option(help=f"One of {', '.join(machines.names())}, or the path of a TOML file.")
    ] = "lassen",
    samples: Annotated[int, typer.Option(help="Samples in the data set.", min=0, show_default=False)] = 0,
    sample_bytes: Annotated[
        str, typer.Option(help="Size of a sample as ranks keep it, such as 16MB.", show_default=False)
    ] = "",
    stored_bytes: Annotated[
        str, typer.Option(help="Size of a sample in the storage, where it is another.", show_default=False)
    ] = "",
    groups: Annotated[int, typer.Option(help="Sample groups.", min=1)] = 4,
    blocks: Annotated[int, typer.Option(help="Ranks of a group, which share each sample.", min=1)] = 1,
    batch: Annotated[int, typer.Option(help="Samples of a group's batch.", min=1)] = 1,
    epochs: Annotated[int, typer.Option(help="Epochs.", min=1)] = 5,
    seed: Annotated[int, typer.Option(help="Seed of the shuffling.")] = 0,
    compute_seconds: Annotated[
        float | None, typer.Option(help="Seconds of computing a step, instead of the machine's.", min=0.0)
    ] = None,
    compute_rate: Annotated[
        str, typer.Option(help="Bytes that a rank computes on per second, instead of the machine's.")
    ] = "",
    policy: Annotated[str, typer.Option(help=f"Policies with commas, of {', '.join(policies.NAMES)}; all.")] = "",
    locality: Annotated[
        LocalityChoice,
        typer.Option(help="batch: deal each step's samples to groups that keep them; epochs: reorder epochs."),
    ] = LocalityChoice.NONE,
    model: Annotated[
        ModelChoice, typer.Option(help="events: every transfer; steps: bytes by step; auto: by the run's size.")
    ] = ModelChoice.AUTO,
    regimes: Annotated[bool, typer.Option("--regimes", help="Simulate four sizes of data set.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw time by policy into this PNG file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print figures as JSON.")] = False,
) -> None:
    """Predict time, stall and bytes of each policy on a machine, and the bound that none beats."""
    check_picture("--plot", plot)
    what = _machine(machine, compute_rate)
    for option, value in (("--samples", samples), ("--sample-bytes", sample_bytes)):
        if not value and not regimes:
            raise UsageError(
                option,
                found="nothing",
                expected="a positive number",
                remedy=f"give {option} of your data set, or --regimes for four sizes that follow from the machine",
            )
    chosen = [policies.named(name) for name in parse_names(policy) or policies.NAMES]
    options = _Options(
        samples or (_REGIME_SAMPLES if regimes else 0),
        parse_bytes(sample_bytes) if sample_bytes else 0,
        parse_bytes(stored_bytes) if stored_bytes else 0,
        groups,
        blocks,
        batch,
        epochs,
        seed,
        compute_seconds,
        None if locality is LocalityChoice.NONE else locality.value,
    )
    named = _regimes(what, options) if regimes else [("", options)]
    hear = None if as_json else _tell
    cases = [_simulate(what, one, chosen, model, name=name, hear=hear) for name, one in named]
    if as_json:
        figures = [_figures(case) for case in cases]
        print(json.dumps({"regimes": figures} if regimes else figures[0]))
    else:
        for case in cases:
            _show(case)
    if plot is not None:
        panels = [Panel(case.name or _title(case), case.outcomes, case.outcomes[0].bound) for case in cases]
        draw_policies(panels, plot, title=what.name)


def _machine(name: str, compute_rate: str) -> Machine:
    found = machines.load(name)
    if not compute_rate:
        return found
    rate = parse_bytes(compute_rate)
    if rate == 0:
        raise UsageError("--compute-rate", found=compute_rate, expected="more than 0 bytes per second")
    return replace(found, compute_rate=float(rate), compute_seconds=0.0)


def _regimes(machine: Machine, options: _Options) -> list[tuple[str, _Options]]:
    """Return the name and the options of each regime; the size of a sample follows from that of the data set."""
    if options.sample_bytes or options.stored_bytes:
        raise UsageError(
            "--regimes", found="--sample-bytes or --stored-bytes", expected="neither: the machine's room gives them"
        )
    found = []
    for regime in regimes_of(machine, options.groups):
        size = max(1, regime.nbytes // options.samples) * options.blocks
        found.append((regime.name, replace(options, sample_bytes=size)))
    return found


def _simulate(
    machine: Machine,
    options: _Options,
    chosen: Sequence[Policy],
    choice: ModelChoice,
    *,
    name: str,
    hear: Callable[[str, Outcome], None] | None,
) -> _Case:
    workload = _workload(machine, options)
    accesses = options.samples * options.epochs
    is_small = accesses <= EVENTS_LIMIT
    model = (Model.EVENTS if is_small else Model.STEPS) if choice is ModelChoice.AUTO else Model(choice.value)
    outcomes = []
    for policy in chosen:
        label = f"{name.partition(':')[0]} {policy.name}".strip()
        with count_bar(label, total=workload.steps, unit="step") as bar:
            outcomes.append(run(machine, workload, policy, model=model, progress=_teller(bar)))
        if hear is not None:
            hear(label, outcomes[-1])
    blocks = optimum_storage_bytes(workload.orders, workload.line) // int(workload.line.sizes[0])
    optimum = blocks * int(workload.read_sizes[0]) * options.blocks
    return _Case(name, machine, workload, tuple(outcomes), optimum)


def _tell(label: str, outcome: Outcome) -> None:
    """Say, on standard error, what a policy takes as soon as it is known: all of them may take minutes."""
    factor, unit = seconds_unit(outcome.seconds)
    print(f"{label}: {outcome.seconds / factor:.4g} {unit}, AU {outcome.accelerator_utilisation:.0%}", file=sys.stderr)


def _teller(bar: tqdm[Never]) -> Callable[[int], None]:
    def tell(steps: int) -> None:
        bar.update(steps)

    return tell


def _workload(machine: Machine, options: _Options) -> Workload:
    block = -(-options.sample_bytes // options.blocks)
    stored = -(-options.stored_bytes // options.blocks) if options.stored_bytes else block
    line = Line(np.full(options.samples, block, np.int64), (machine.room,) * options.groups)
    orders = shuffled_orders(
        options.samples, options.groups, batch=options.batch, seed=options.seed, epochs=options.epochs
    )
    seconds = (
        machine.step_seconds(options.batch * block) if options.compute_seconds is None else options.compute_seconds
    )
    sizes = np.full(options.samples, stored, np.int64)
    return Workload(line, orders, seconds, options.blocks, sizes, options.locality)


def _figures(case: _Case) -> dict[str, Any]:
    """Return a case as plain values."""
    workload, bound = case.workload, case.outcomes[0].bound
    return {
        "name": case.name,
        "machine": case.machine.name,
        "source": case.machine.source,
        "groups": workload.line.groups,
        "blocks": workload.lines,
        "samples": len(workload.line.sizes),
        "block_bytes": int(workload.line.sizes[0]),
        "steps": workload.steps,
        "slots": case.machine.slots(workload.batch_bytes),
        "compute_seconds_per_step": workload.compute,
        "locality": workload.locality,
        "bound_seconds": {
            "compute": bound.compute,
            "storage": bound.storage,
            "slots": bound.slots,
            "order": bound.order,
            "all": bound.seconds,
        },
        "optimum_storage_bytes": case.optimum,
        "policies": [_policy_figures(outcome) for outcome in case.outcomes],
    }


def _policy_figures(outcome: Outcome) -> dict[str, Any]:
    return {
        "policy": outcome.policy,
        "model": outcome.model.value,
        "seconds": outcome.seconds,
        "compute_seconds": outcome.compute,
        "stall_seconds": outcome.stall,
        "accelerator_utilisation": outcome.accelerator_utilisation,
        "bytes_by_source": {source.value: nbytes for source, nbytes in outcome.bytes_by_source.items()},
        "stored_bytes": {tier.value: nbytes for tier, nbytes in outcome.stored_bytes.items()},
        "epochs": [
            {
                "epoch": epoch.epoch,
                "seconds": epoch.seconds,
                "stall_seconds": epoch.stall,
                "storage_bytes": epoch.storage_bytes,
                "peer_bytes": epoch.peer_bytes,
            }
            for epoch in outcome.epochs
        ],
    }


def _title(case: _Case) -> str:
    workload = case.workload
    size = format_bytes(int(workload.line.sizes.sum()) * workload.lines)
    ranks = f"{workload.line.groups} groups" + (f" of {workload.lines} ranks" if workload.lines > 1 else "")
    return f"{size} on {ranks}, {len(workload.orders)} epochs"


def _show(case: _Case) -> None:
    bound = case.outcomes[0].bound
    title = f"{case.name}; {_title(case)}" if case.name else f"{case.machine.name}: {_title(case)}"
    console = Screen()
    console.print(policy_table(title, case.outcomes))
    factor, unit = seconds_unit(bound.seconds)
    parts = (
        ("compute", bound.compute),
        ("storage once", bound.storage),
        ("slots", bound.slots),
        ("in order", bound.order),
    )
    console.print(
        f"No policy takes less than {bound.seconds / factor:.4g} {unit} "
        f"({', '.join(f'{name} {seconds / factor:.3g}' for name, seconds in parts)}), "
        f"nor reads less of the storage than {format_bytes(case.optimum)}."
    )
