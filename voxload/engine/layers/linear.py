"""Linear behind a flatten, in split form, without gathering the volume.

Each rank multiplies the features of its own block with the columns of the weight that stand for them, and the products
are added up: (B, outputs) numbers travel instead of the volume. The weight stays whole on every rank, and its name and
checkpoint what they were.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, fx, nn

from voxload.engine.arithmetic.blocks import Blocks
from voxload.engine.arithmetic.layer_plan import LayerPlan, Tile
from voxload.engine.layers.form import PassContext, with_forward
from voxload.engine.run.collectives import all_sum
from voxload.errors import UsageError


@dataclass(frozen=True, slots=True)
class Columns:
    """The split form of nn.Linear on a volume that is flattened."""

    kind: str = "Linear"
    """Name of the layer's class."""

    def plan(self, blocks: Blocks, wanted: Blocks | None, *, min_width: int) -> LayerPlan:  # noqa: ARG002 - see Form
        """Return a plan that leaves every block where it is."""
        return LayerPlan(blocks, blocks)

    def run(self, layer: nn.Module, x: Tensor, tile: Tile, context: PassContext) -> Tensor:
        """Return the whole result, (B, outputs), on every rank; see Form."""
        y: Tensor = layer(x, tile, context)
        return y


def split_linear(layer: nn.Linear) -> tuple[Columns, nn.Module]:
    """Return the form of a dense layer behind a flatten, and the layer as it runs on blocks."""
    return Columns(), with_forward(layer, _of_block)


def follows_flatten(model: nn.Module, node: fx.Node) -> bool:
    """Tell whether all that a flatten's result goes to is one dense layer."""
    users = list(node.users)
    if len(users) != 1 or users[0].op != "call_module" or len(users[0].args) != 1 or users[0].kwargs:
        return False
    return type(model.get_submodule(str(users[0].target))) is nn.Linear


def _of_block(layer: nn.Linear, x: Tensor, tile: Tile, context: PassContext) -> Tensor:
    """Return what the layer makes of the whole flattened volume."""
    features = x.shape[1] * prod(tile.shape)
    if features != layer.in_features:
        raise UsageError(
            "Linear behind a flatten",
            found=f"{features} features",
            expected=f"{layer.in_features}, as the layer has it",
        )
    own = tuple(slice(first, first + extent) for first, extent in zip(tile.first, tile.extents, strict=True))
    columns = layer.weight.view(layer.out_features, x.shape[1], *tile.shape)[(slice(None), slice(None), *own)]
    part = torch.nn.functional.linear(x.flatten(1), columns.flatten(1))
    total = all_sum(part, context.exchange)
    bias: Tensor | None = layer.bias
    return total if bias is None else total + bias
