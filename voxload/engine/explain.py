"""explain: a table of what each layer of a split network owns, fetches and sends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import fx, nn

from voxload.engine.arithmetic.axis_plan import Part
from voxload.engine.arithmetic.blocks import Blocks
from voxload.engine.arithmetic.split_plan import SplitPlan
from voxload.engine.checked import aligned
from voxload.engine.forward.plan_cache import PlanCache, SplitOptions
from voxload.engine.forward.planning import GATHER_LIMIT
from voxload.engine.forward.traffic import Explained, Traffic, explained
from voxload.engine.graph.network_plan import NetworkPlan, parts_of, plan_network
from voxload.engine.graph.program import Program, Step, compile_program
from voxload.engine.graph.sharded import TracedModel
from voxload.engine.graph.trace import trace
from voxload.engine.model.meta_runs import BATCH, require_module, shapes_of
from voxload.engine.shard import MIN_WIDTH
from voxload.errors import UsageError
from voxload.grid import ProcessGrid

_HEADER = (
    "layer",
    "operation",
    "from",
    "to",
    "ranks",
    "this rank's block",
    "messages",
    "received KiB",
    "compute ms",
    "exchange ms",
)
_KIB = 1024
_MILLI = 1000.0


@dataclass(frozen=True, slots=True)
class Machine:
    """The speeds that times are estimated with; the defaults are those of a GPU in a node of several."""

    flops: float = 5e13
    """Floating-point operations a second that a convolution reaches."""
    bandwidth: float = 2.5e10
    """Bytes a second between two ranks."""
    latency: float = 2e-5
    """Seconds that an exchange takes however small it is."""


def explain(  # noqa: PLR0913 - each is a choice of the caller's
    model: nn.Module,
    shape: Sequence[int],
    grid: ProcessGrid,
    *,
    dtype: torch.dtype = torch.float32,
    min_width: int = MIN_WIDTH,
    gather_limit: int = GATHER_LIMIT,
    plan: SplitPlan | None = None,
    machine: Machine | None = None,
) -> str:
    """Return a table of the layers that communicate when `model` runs split over `grid`; nothing is sent.

    One row per operation that fetches or sums: the extents of its input and output, how many ranks of the group own
    any of the output, this rank's block of it in global voxels, the messages that this rank receives in a forward
    pass over one sample and their size, and estimates of the times for computing and exchanging.

    Parameters
    ----------
    model
        The ordinary network.
    shape
        Extents (D, H, W) of the whole volume, in voxels.
    grid
        The grid, seen from the rank of interest.
    dtype
        Type of the activations.
    min_width, gather_limit, plan
        As `voxload.engine.shard` takes them.
    machine
        Speeds for the estimates.

    Raises
    ------
    UsageError
        When the network or the shape cannot be split, as `voxload.engine.shard` would.
    """
    require_module(model)
    units = dtype, machine or Machine()
    uses = None if plan is None or plan.is_in_space else plan
    refusal = None
    if uses is None:
        try:
            return aligned([_HEADER, *_traced(model, shape, grid, (min_width, units))])
        except UsageError as error:
            refusal = error
    # As in shard: what no trace can keep may still run as it is.
    plans = PlanCache(model, SplitOptions(grid, Blocks.of(grid, shape), min_width, gather_limit, plan=uses))
    planned = plans.ahead(model, shape)
    if planned is None:
        raise refusal or UsageError(
            f"explain of {type(model).__name__}",
            found=f"no single volume of shape {tuple(shape)} that it takes",
            expected="a forward that runs on (B, C, D, H, W)",
        )
    return aligned([_HEADER, *(_called(each, grid, units) for each in explained(planned, grid.coords))])


Units = tuple[torch.dtype, Machine]


def _traced(
    model: nn.Module, shape: Sequence[int], grid: ProcessGrid, options: tuple[int, Units]
) -> list[tuple[str, ...]]:
    """Return the rows of a network of which a trace was made."""
    min_width, units = options
    # As shard decides: what a trace does not compute as forward does is none that is run.
    TracedModel(model, tuple(count > 1 for count in grid.spatial)).check(shape)
    graph = trace(model)
    program = compile_program(model, graph, tuple(count > 1 for count in grid.spatial))
    plan = plan_network(program, Blocks.of(grid, shape), min_width=min_width)
    table = _Table(model, program, plan, shapes_of(model, graph, shape))
    return [row for step in program.steps for row in table.rows(step, grid, units)]


def _called(each: Explained, grid: ProcessGrid, units: Units) -> tuple[str, ...]:
    """Return the row of a call of a network whose own forward runs on blocks."""
    dtype, machine = units
    size = each.received.elements // BATCH * dtype.itemsize
    wire = (machine.latency + size / machine.bandwidth) if each.received.messages else 0.0
    is_whole = each.after.is_whole
    return (
        each.call.where,
        each.name if each.fallback is None else f"{each.name} on {each.fallback.nbytes // BATCH:,} bytes made whole",
        "x".join(map(str, each.before.shape[2:])),
        "x".join(map(str, each.after.shape[2:])),
        str(sum(all(each.after.block_shape(grid.coords_of(rank))) for rank in grid.group_ranks)),
        "all" if is_whole else "x".join(map(str, each.after.block_shape(grid.coords)[2:])),
        str(each.received.messages),
        f"{size / _KIB:.1f}",
        "-",
        f"{wire * _MILLI:.3f}",
    )


def traffic(parts: Sequence[Part], extents: Sequence[int], channels: int) -> Traffic:
    """Return what a rank with a block of `extents` receives when it carries out `parts` in order."""
    sizes = list(extents)
    messages = voxels = 0
    for part in parts:
        others = prod(size for axis, size in enumerate(sizes) if axis != part.axis)
        messages += len(part.incoming) if others else 0
        voxels += part.received * others
        sizes[part.axis] = part.needed
    return Traffic(messages, voxels * channels)


@dataclass(frozen=True, slots=True)
class _Table:
    """Makes rows of operations."""

    model: nn.Module
    program: Program
    plan: NetworkPlan
    shapes: dict[str, tuple[int, ...]]

    def rows(self, step: Step, grid: ProcessGrid, units: tuple[torch.dtype, Machine]) -> list[tuple[str, ...]]:
        """Return the rows of one operation: none, or one for each volume that it fetches."""
        node = step.node
        if step.form is not None and step.site in self.plan.layers:
            layer = self.plan.layers[step.site]
            source = node.all_input_nodes[0]
            received = traffic(layer.at(grid.coords).parts, layer.source.box(grid.coords).shape, self._channels(source))
            label = str(node.target) if node.op == "call_module" else node.name
            own = layer.result if step.is_cut else None
            compute = self._operations(step, own, grid)
            return [_row((label, step.form.kind), (layer.source, own, grid), received, (compute, *units))]
        found = []
        for name, move in self.plan.moves.get(step.site, {}).items():
            blocks = self.plan.cuts[name]
            source = next(each for each in node.all_input_nodes if each.name == name)
            received = traffic(parts_of(move, grid.coords), blocks.box(grid.coords).shape, self._channels(source))
            own = None if step.reassembles else Blocks(tuple(_bounds(plan.needs) for plan in move))
            label = str(node.target) if node.op == "call_module" else node.name
            kind = "reassemble" if step.reassembles else f"align {name}"
            found.append(_row((label, kind), (blocks, own, grid), received, (0.0, *units)))
        return found

    def _channels(self, node: fx.Node) -> int:
        """Return the channels of a volume."""
        return self.shapes[node.name][1] if node.name in self.shapes else 1

    def _operations(self, step: Step, own: Blocks | None, grid: ProcessGrid) -> float:
        """Return the floating-point operations of this rank's part of a convolution, for one sample; 0 for others."""
        layer = self.model.get_submodule(str(step.node.target)) if step.node.op == "call_module" else None
        if own is None or not isinstance(layer, nn.Conv3d | nn.ConvTranspose3d):
            return 0.0
        # Each voxel of the larger side of a transposed convolution is reached by so many of the smaller.
        reads = self.plan.layers[step.site].source if isinstance(layer, nn.ConvTranspose3d) else own
        return 2.0 * layer.weight.numel() * prod(reads.box(grid.coords).shape)


def _row(
    names: tuple[str, str],
    cuts: tuple[Blocks, Blocks | None, ProcessGrid],
    received: Traffic,
    units: tuple[float, torch.dtype, Machine],
) -> tuple[str, ...]:
    """Return the cells of one row."""
    before, after, grid = cuts
    operations, dtype, machine = units
    size = received.elements * dtype.itemsize
    wire = (machine.latency + size / machine.bandwidth) if received.messages else 0.0
    return (
        *names,
        _extents(before),
        "whole" if after is None else _extents(after),
        str(grid.group_size if after is None else _busy(after, grid)),
        "all" if after is None else str(after.box(grid.coords)),
        str(received.messages),
        f"{size / _KIB:.1f}",
        f"{operations / machine.flops * _MILLI:.3f}",
        f"{wire * _MILLI:.3f}",
    )


def _busy(blocks: Blocks, grid: ProcessGrid) -> int:
    """Return how many ranks of the group own any of a volume."""
    return sum(all(blocks.box(grid.coords_of(rank)).shape) for rank in grid.group_ranks)


def _extents(blocks: Blocks) -> str:
    return "x".join(str(extent) for extent in blocks.shape)


def _bounds(needs: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    return (*(lo for lo, _ in needs), needs[-1][1])
