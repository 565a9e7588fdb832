"""Messages: the bytes that ranks receive by the engine's plan, and how much of their time a training step hides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bench.engining.rounds import Kind, Pace, Rounds, Trial, milliseconds, run_rounds
from bench.engining.world import ALL_TO_ALL, CHANNELS, NONE, P2P, SPATIAL, TARGETS, Way, Worlds
from bench.harness.findings import Outcome, Sheet
from voxload.engine.arithmetic.blocks import Blocks
from voxload.engine.explain import traffic
from voxload.engine.graph.network_plan import NetworkPlan, parts_of, plan_network
from voxload.engine.graph.program import Program, compile_program
from voxload.engine.graph.trace import trace
from voxload.engine.model.meta_runs import shapes_of
from voxload.engine.shard import MIN_WIDTH
from voxload.grid import ProcessGrid
from voxload.models import CosmoFlow

_REPEATS = 10
"""Times that the messages of a step are sent in a row, to time them alone."""
_EXCHANGES = {NONE: "NoExchange", P2P: "P2P", ALL_TO_ALL: "AllToAll"}
_UNRESOLVED = "unresolved"
"""What the table says instead of a share that noise alone would make."""
_FEW = 3
"""Fewer rounds tell nothing of how far they are apart."""
_KIB = 1 << 10


def hidden(worlds: Worlds, pace: Pace, kind: Kind) -> Outcome:
    """Time training steps with each exchange and way of joining, and the messages alone."""
    sheets: list[Sheet] = []
    document: dict[str, Any] = {}
    others: list[float] = []
    wrong: list[str] = []
    ceilings = [Way(NONE, join) for join in kind.joins]
    ways = [*(Way(P2P, join) for join in kind.joins), Way(ALL_TO_ALL, kind.joins[0])]
    for count in kind.ranks:
        trials = [Trial(_title(way), count, way, is_ddp=True) for way in (*ceilings, *ways)]
        found = run_rounds(worlds, trials, pace)
        alone = {_title(way): worlds.of(count).ask("serial", way, repeats=_REPEATS) for way in ways}
        worlds.leave(count)
        planned = received_bytes(pace.size, count, itemsize=kind.itemsize)
        for title, answers in alone.items():
            received = [answer["received"] for answer in answers]
            if received != planned:
                wrong.append(f"{title}, {count} ranks: received {received} bytes, planned {planned}")
        rows = [_row(found, way, alone.get(_title(way), [])) for way in (*ceilings, *ways)]
        sheets.append(_sheet(rows, pace, count))
        document[str(count)] = found.document() | {"alone": alone, "planned": planned}
        others += found.turns.others
        wrong += found.wrong
    return Outcome((), tuple(sheets), document, tuple(others), tuple(wrong))


def _title(way: Way) -> str:
    return f"{_EXCHANGES[way.exchange]}, {way.join}"


def _row(found: Rounds, way: Way, alone: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """Return a step's times beside the same step's without messages."""
    name, ceiling = _title(way), _title(Way(NONE, way.join))
    if not alone:
        return (name, milliseconds(found.median(name)), *("-",) * 7)
    serial = max(answer["seconds"] for answer in alone)
    results = found.turns.results
    beyond = [one.seconds - free.seconds for one, free in zip(results[name], results[ceiling], strict=True)]
    exposed = 1 - 1 / np.array(found.ratios(name, ceiling))
    return (
        name,
        milliseconds(found.median(name)),
        f"{np.median(exposed):.2%}",
        f"{exposed.min():.2%} to {exposed.max():.2%}",
        milliseconds(found.median(name, "shortest_wait")),
        milliseconds(found.median(name, "longest_wait")),
        milliseconds(serial),
        f"{max(answer['received'] for answer in alone) / _KIB:.0f}",
        _share(beyond, serial),
    )


def _sheet(rows: Sequence[tuple[str, ...]], pace: Pace, ranks: int) -> Sheet:
    return Sheet(
        title=f"Messages, {ranks} ranks: a training step, {pace.size}^3",
        caption=f"{pace.rounds} rounds, medians of the shortest of {pace.steps} steps; NoExchange, the ceiling: no "
        "message travels; exposed: 1 - ceiling / step, with its range; exchange: time in it, of the rank that waits "
        "least and most; alone: the same messages one after the other without a step; KiB: received in a forward pass; "
        f"hidden: 1 - (step - ceiling) / alone, or {_UNRESOLVED} where rounds differ by more than the messages take or "
        f"are fewer than {_FEW}",
        columns=("", "ms", "exposed", "from - to", "exchange ms", "to", "alone ms", "KiB", "hidden"),
        rows=tuple(rows),
    )


def _share(beyond: Sequence[float], serial: float) -> str:
    """Return the part of the messages' own time that steps did not take longer, from each round's difference."""
    is_doubtful = len(beyond) < _FEW or max(beyond) - min(beyond) > serial
    return _UNRESOLVED if is_doubtful else f"{1 - float(np.median(beyond)) / serial:.0%}"


def received_bytes(size: int, ranks: int, *, itemsize: int) -> list[int]:
    """Return what each rank receives in a forward pass of CosmoFlow over one sample.

    Parameters
    ----------
    size
        Voxels of the volume along each axis.
    ranks
        Ranks that share it.
    itemsize
        Bytes of a number.
    """
    model = CosmoFlow(size, CHANNELS, TARGETS)
    shape = (size,) * 3
    grid = ProcessGrid(SPATIAL[ranks], ranks)
    graph = trace(model)
    program = compile_program(model, graph, tuple(count > 1 for count in grid.spatial))
    plan = plan_network(program, Blocks.of(grid, shape), min_width=MIN_WIDTH)
    channels = {name: shape[1] for name, shape in shapes_of(model, graph, shape).items()}
    return [itemsize * _elements(program, plan, channels, grid.at(rank)) for rank in range(ranks)]


def _elements(program: Program, plan: NetworkPlan, channels: dict[str, int], grid: ProcessGrid) -> int:
    """Return the numbers that one rank receives."""
    total = 0
    for step in program.steps:
        if step.form is not None and step.site in plan.layers:
            layer = plan.layers[step.site]
            source = step.node.all_input_nodes[0].name
            parts = layer.at(grid.coords).parts
            total += traffic(parts, layer.source.box(grid.coords).shape, channels[source]).elements
        for source, move in plan.moves.get(step.site, {}).items():
            parts, extents = parts_of(move, grid.coords), plan.cuts[source].box(grid.coords).shape
            total += traffic(parts, extents, channels[source]).elements
    return total
