"""PartedNetwork: the network of a training as parts that follow each other, and the step of the chain of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from voxload.engine import NoExchange, pipeline_parts, shard
from voxload.engine.pipeline import Boundary, boundaries
from voxload.engine.shard import shard_on_shapes
from voxload.grid import ProcessGrid
from voxload.plan.forecast.setups import Setup, Spatial
from voxload.plan.forecast.training import OPTIMIZERS, Training
from voxload.plan.trace.stages import ChainTrace, PartSize
from voxload.plan.trace.step import trace_network
from voxload.plan.trace.volume import BATCH, VolumeTrace


class Chain(nn.Module):
    """Parts of a network, each of which takes what the one before it gives."""

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        super().__init__()
        for number, part in enumerate(parts):
            self.add_module(str(number), part)

    def forward(self, x: Tensor) -> Any:
        """Return what the last part gives."""
        given: Any = x
        for part in self.children():
            given = part(*given) if isinstance(given, tuple) else part(given)
        return given


class PartedNetwork:
    """A network that is cut at some places; used by one thread.

    Parameters
    ----------
    training
        Whose network.
    model
        That network, on the meta device.
    cuts
        Where, as `voxload.engine.pipeline_parts` takes it.

    Raises
    ------
    UsageError
        When it cannot be cut there.
    """

    def __init__(self, training: Training, model: nn.Module, cuts: Sequence[str]) -> None:
        self.training, self.cuts = training, tuple(cuts)
        self.parts = pipeline_parts(model, cuts, shape=training.shape, channels=training.sample[0])
        self.sizes = [
            PartSize(
                sum(_nbytes(each) for each in (*part.parameters(), *part.buffers())),
                sum(_nbytes(each) for each in part.parameters() if each.requires_grad),
            )
            for part in self.parts
        ]
        self._chains: dict[tuple[Spatial, int], ChainTrace] = {}

    @cached_property
    def boundaries(self) -> list[Boundary]:
        """What goes into each part, and what the last one gives, of one whole sample."""
        return self.boundaries_of(Setup((1, 1, 1), 1, 1))

    def boundaries_of(self, setup: Setup) -> list[Boundary]:
        """Return what goes into each part of a microbatch; raises UsageError where it cannot be sent over the grid."""
        size = (setup.at_once, *self.training.sample)
        return list(boundaries(self.parts, setup.grid, size, {}))

    def nbytes(self, end: int, setup: Setup) -> int:
        """Return the bytes of a microbatch that go into the part `end` on one rank."""
        found = 0
        for each in self.boundaries[end]:
            whole = each.empty(is_whole=True)
            nbytes = setup.at_once * _nbytes(whole)
            for count in setup.spatial if whole.ndim == 5 else ():
                nbytes = -(-nbytes // count)
            found += nbytes
        return found

    def on_blocks(self, setup: Setup) -> ChainTrace:
        """Return the step of a microbatch on a rank in the middle, by arithmetic from that on whole samples."""
        key = setup.spatial, setup.at_once
        if key not in self._chains:
            step = self._volumes.on_blocks(setup.spatial, batch=setup.at_once)
            self._chains[key] = ChainTrace.of(step, self.sizes)
        return self._chains[key]

    def traced(self, setup: Setup) -> ChainTrace:
        """Return the step of a microbatch on a rank in the middle as the engine runs it; raises as boundaries_of."""
        grid, parts = setup.grid, list[nn.Module]()
        for part, before in zip(self.parts, self.boundaries_of(setup), strict=False):
            is_cut = any(each.is_cut for each in before)
            parts.append(shard(part, grid, shape=before[0].shape[-3:], exchange=NoExchange(grid)) if is_cut else part)
        return self._trace(parts, grid.block(self.training.shape).shape, setup.at_once)

    @cached_property
    def _volumes(self) -> VolumeTrace:
        alone, parts = ProcessGrid((1, 1, 1), 1), list[nn.Module]()
        for part, before in zip(self.parts, self.boundaries, strict=False):
            is_volume = len(before) == 1 and len(before[0].shape) == 5
            parts.append(shard_on_shapes(part, alone, before[0].shape[-3:]) if is_volume else part)
        return VolumeTrace(
            self._trace(parts, self.training.shape, BATCH).step, self.training.shape, self.training.sample[0]
        )

    def _trace(self, parts: Sequence[nn.Module], shape: Sequence[int], batch: int) -> ChainTrace:
        training, network = self.training, Chain(parts)
        x = torch.empty(batch, training.sample[0], *shape, device="meta")
        network(x)  # what is looked at once
        optimizer, autocast = OPTIMIZERS[training.optimizer], training.autocast
        step = trace_network(Chain(self.parts), network, x, optimizer=optimizer, autocast=autocast)
        return ChainTrace.of(step, self.sizes)


def _nbytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
