"""Form: the contract of a layer's split form, and what it may ask of the forward pass."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import MethodType
from typing import Any, Protocol

from torch import Tensor, nn

from voxload.engine.arithmetic.blocks import Blocks
from voxload.engine.arithmetic.layer_plan import LayerPlan, Tile
from voxload.engine.exchange.protocol import Exchange
from voxload.engine.run.join import Chooser


class PassContext(Protocol):
    """What a layer may ask of the forward pass that it is a part of; fixed while a volume goes through the network."""

    @property
    def exchange(self) -> Exchange:
        """Carries the messages."""

    @property
    def chooser(self) -> Chooser:
        """Says how convolutions join halos with blocks."""

    @property
    def seed(self) -> Tensor:
        """Seed of all random numbers, an int64 scalar, the same on all ranks of the sample group."""


class Form(Protocol):
    """The split form of a layer: a plan from pure integers, and a run that carries out one rank's part of it.

    Frozen; shared by all threads.
    """

    @property
    def kind(self) -> str:
        """Name of the layer's class, for tables and errors."""

    def plan(self, blocks: Blocks, wanted: Blocks | None, *, min_width: int) -> LayerPlan:
        """Return the plan for an input cut into `blocks`.

        Parameters
        ----------
        blocks
            Cut of the input.
        wanted
            Cut of the output that the layers behind would like best, or None.
        min_width
            An axis whose blocks would have fewer voxels than this goes to fewer ranks.

        Raises
        ------
        UsageError
            When the layer does not fit the volume.
        """

    def run(self, layer: nn.Module, x: Tensor, tile: Tile, context: PassContext) -> Tensor:
        """Return this rank's block of the output; all ranks of the sample group must call it together."""


def with_forward(layer: nn.Module, forward: Callable[..., Tensor]) -> nn.Module:
    """Return `layer` with ``forward(layer, x, tile, ...)`` in place of its own; hooks go on working.

    Parameters, buffers and sub-modules are the layer's very objects.
    """
    twin: Any = copy.copy(layer)
    twin.forward = MethodType(forward, twin)
    return twin  # type: ignore[no-any-return] # the copy of a module is one
