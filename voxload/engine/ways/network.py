"""NetworkWays: all ways in which the calls of a network can be carried out, each to be run on tensors without data.

A planner tells by it what every choice of every layer takes, before one is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from voxload.engine.arithmetic.blocks import Blocks
from voxload.engine.arithmetic.split_plan import IN_SPACE, Use, Uses
from voxload.engine.exchange.in_process import NoExchange
from voxload.engine.forward.inputs import Inputs, TensorSpec
from voxload.engine.forward.plan_cache import PlanCache, SplitOptions
from voxload.engine.forward.recording import Given, Value
from voxload.engine.forward.redistribution import moved
from voxload.engine.forward.rule import Context
from voxload.engine.model.pytrees import leaves, mapped
from voxload.engine.shard import MIN_WIDTH
from voxload.engine.ways.calls import CallWays, Way, ways_of
from voxload.grid import ProcessGrid

__all__ = ["IN_SPACE", "CallWays", "NetworkWays", "Use", "Uses", "Way"]


class NetworkWays:
    """The calls of a network, and all ways to carry them out; used by one thread.

    Parameters
    ----------
    model
        The network, on the meta device.
    grid
        The grid, seen from the rank of interest.
    size
        Shape (B, C, D, H, W) of the whole volumes of a sample group.
    uses
        What a layer with weights may use the axes of the grid for.
    min_width
        As `voxload.engine.shard` takes it.

    Raises
    ------
    UsageError
        When the network cannot be recorded, or one of its calls cannot be carried out, or in too many ways.
    """

    def __init__(
        self,
        model: nn.Module,
        grid: ProcessGrid,
        size: Sequence[int],
        *,
        uses: Sequence[Uses],
        min_width: int = MIN_WIDTH,
    ) -> None:
        blocks = Blocks.of(grid, size[2:])
        plans = PlanCache(model, SplitOptions(grid, blocks, min_width))
        weight = next((each for each in model.parameters() if each.is_floating_point()), torch.empty(0))
        own = TensorSpec((*size[:2], *blocks.box(grid.coords).shape), weight.dtype, torch.device("meta"))
        planned = plans.of(model, Inputs((own,), {}), blocks)
        self._coords, self._mesh, self._exchange = grid.coords, grid.spatial, NoExchange(grid)
        self.calls: tuple[CallWays, ...] = ways_of(
            planned.recording, planned.cuts, grid.spatial, uses=uses, min_width=min_width
        )

    def run(self, number: int, way: Way, watch: AbstractContextManager[Any]) -> None:
        """Carry out a call and its backward pass as this rank does in one way; nothing is computed or sent.

        `watch` is entered for either pass, and for nothing else.
        """
        found = self.calls[number]
        blocks, given = self._blocks(found, way), _given(found)
        with watch:
            result = self._result(found, way, blocks, given)
        wanted = [each for each in leaves(result) if isinstance(each, Tensor) and each.grad_fn is not None]
        if wanted:
            gradients = [torch.empty_like(each) for each in wanted]
            with watch:
                torch.autograd.backward(wanted, gradients)

    def _blocks(self, found: CallWays, way: Way) -> list[Tensor]:
        """Return this rank's blocks of the values that a call takes; of equal values one tensor."""
        by_number = dict[int, Tensor]()
        for value, cut, (maker, _) in zip(found.taken, way.taken, found.sources, strict=True):
            if value.number not in by_number:
                shape = cut.block_shape(self._coords)
                by_number[value.number] = _block(shape, value.dtype, has_grad=maker >= 0)
        return [by_number[value.number] for value in found.taken]

    def _result(self, found: CallWays, way: Way, blocks: Sequence[Tensor], given: Any) -> Any:
        """Bring blocks to the cuts in which a call takes them, and carry it out with these for its values."""
        pairs = iter(zip(blocks, way.moves, strict=True))

        def brought(leaf: Any) -> Any:
            if not isinstance(leaf, Value):
                return leaf
            block, move = next(pairs)
            return block if move is None else moved(block, move, self._coords, self._exchange)

        args, kwargs = mapped(given, brought)
        if found.call is None or way.action is None:
            return args
        here = Context(self._coords, self._mesh, self._exchange)
        return way.action.run(found.call.function, tuple(args), dict(kwargs), here)


def _given(found: CallWays) -> Any:
    """Return the arguments of a call, with tensors in the places of weights and others that are no values."""

    def made(leaf: Any) -> Any:
        if not isinstance(leaf, Given):
            return leaf
        has_grad = found.is_layer and leaf.dtype.is_floating_point
        return torch.empty(leaf.shape, dtype=leaf.dtype, device="meta", requires_grad=has_grad)

    if found.call is None:
        return found.taken, {}
    return mapped((found.call.args, dict(found.call.kwargs)), made)


class _Entry(torch.autograd.Function):
    """What stands for the network before a call: a tensor that may be written into, whose gradient goes nowhere."""

    @staticmethod
    def forward(ctx: Any, leaf: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:  # noqa: ARG004 - torch's
        return torch.empty(shape, dtype=dtype, device="meta")

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # noqa: ARG004 - torch's
        return None, None, None


def _block(shape: tuple[int, ...], dtype: torch.dtype, *, has_grad: bool) -> Tensor:
    if not (has_grad and dtype.is_floating_point):
        return torch.empty(shape, dtype=dtype, device="meta")
    leaf = torch.empty(0, device="meta", requires_grad=True)
    block: Tensor = _Entry.apply(leaf, shape, dtype)  # type: ignore[no-untyped-call] # torch leaves it untyped
    return block
