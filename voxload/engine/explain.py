"""explain: a table of what each layer of a split network owns, fetches and sends."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import fx, nn

from voxload.engine.blocks import Blocks
from voxload.engine.network import plan_network
from voxload.engine.plan import Part
from voxload.engine.program import Place, compile_program
from voxload.engine.reshape import parts_of
from voxload.engine.trace import trace
from voxload.geometry import Box
from voxload.grid import ProcessGrid

_HEADER = ("layer", "operation", "from", "to", "this rank's block", "messages", "received KiB")
_KIB = 1024


def explain(model: nn.Module, shape: Sequence[int], grid: ProcessGrid, *, dtype: torch.dtype = torch.float32) -> str:
    """Return a table of the layers that communicate when `model` runs split over `grid`; nothing is sent.

    One row per convolution, pooling and reassembly: the extents of its input and output, this rank's block of
    the output in global voxels, the messages that this rank receives, and their size for one sample.

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

    Raises
    ------
    UsageError
        When the network or the shape cannot be split, as `voxload.engine.shard` would.
    """
    program = compile_program(model, trace(model), tuple(count > 1 for count in grid.spatial))
    start = Blocks.of(grid, shape)
    plan = plan_network(program, start)
    rows = [_HEADER]
    cuts: dict[fx.Node, tuple[Blocks, int]] = {}
    for step in program.steps:
        node = step.node
        blocks, channels = next((cuts[source] for source in node.all_input_nodes if source in cuts), (start, 0))
        layer = model.get_submodule(str(node.target)) if node.op == "call_module" else None
        result = blocks
        if isinstance(layer, nn.Conv3d):
            channels = layer.in_channels
        if step.stencil is not None:
            result = plan.stencils[node.name].result
            parts = plan.stencils[node.name].at(grid.coords).parts
            rows.append(
                (
                    *_layer_cells(node, step.stencil.kind, blocks, result),
                    str(result.box(grid.coords)),
                    *_traffic(parts, blocks.box(grid.coords).shape, channels, dtype),
                )
            )
        elif step.reassembles:
            parts = parts_of(plan.wholes[node.name], grid.coords)
            rows.append(
                (
                    *_layer_cells(node, "reassemble", blocks, blocks),
                    str(Box.whole(blocks.shape)),
                    *_traffic(parts, blocks.box(grid.coords).shape, channels, dtype),
                )
            )
        if step.place is Place.BLOCK:
            cuts[node] = result, layer.out_channels if isinstance(layer, nn.Conv3d) else channels
    return _table(rows)


def _layer_cells(node: fx.Node, kind: str, before: Blocks, after: Blocks) -> tuple[str, str, str, str]:
    """Return the cells that say which layer this is and what it makes of the whole volume."""
    old, new = ("x".join(str(extent) for extent in blocks.shape) for blocks in (before, after))
    return str(node.target), kind, old, new


def _traffic(parts: Sequence[Part], extents: Sequence[int], channels: int, dtype: torch.dtype) -> tuple[str, str]:
    """Return the number of messages that a rank receives, and their size; 0 channels means not known."""
    sizes = list(extents)
    messages = voxels = 0
    for part in parts:
        others = prod(size for axis, size in enumerate(sizes) if axis != part.axis)
        messages += len(part.incoming) if others else 0
        voxels += part.received * others
        sizes[part.axis] = part.needed
    kib = voxels * dtype.itemsize * max(channels, 1) / _KIB
    return str(messages), f"{kib:.1f}" + ("" if channels else " per channel")


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    """Return `rows` as lines of aligned columns."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
