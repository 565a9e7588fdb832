"""Planned: the bytes that each rank receives in a forward pass, from the engine's plan alone."""

from __future__ import annotations

from bench.engining.job import CHANNELS, SPATIAL, TARGETS
from voxload.engine.arithmetic.blocks import Blocks
from voxload.engine.explain import traffic
from voxload.engine.graph.network_plan import NetworkPlan, parts_of, plan_network
from voxload.engine.graph.program import Program, compile_program
from voxload.engine.graph.trace import trace
from voxload.engine.model.meta_runs import shapes_of
from voxload.engine.shard import MIN_WIDTH
from voxload.grid import ProcessGrid
from voxload.models import CosmoFlow


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
