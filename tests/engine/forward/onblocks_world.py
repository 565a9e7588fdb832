"""Virtual ranks with a network each whose own forward runs on blocks, and the same network in one process."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from tests.engine import virtual
from tests.engine.virtual import Spatial
from voxload.grid import ProcessGrid

SHAPE = (6, 8, 10)
SPATIAL = (2, 1, 2)
GRID = ProcessGrid(SPATIAL, prod(SPATIAL))
TOLERANCE = 1e-12


class World:
    """Virtual ranks with a copy of a model each."""

    def __init__(
        self, model: nn.Module, spatial: Spatial = SPATIAL, *, shape: tuple[int, ...] | None = None, **options: Any
    ) -> None:
        self.whole: Any = model.double()
        world = virtual.World.of(self.whole, shape, spatial, **options)
        self.loop, self.ranks = world.loopback, range(prod(spatial))
        self.nets: list[Any] = world.networks

    def block(self, rank: int, x: Tensor) -> Tensor:
        """Return a rank's block of a batch of volumes (B, C, D, H, W) or of images (B, C, H, W)."""
        extents = x.shape[2:]
        box = self.loop.grid.at(rank).block((1,) * (3 - len(extents)) + extents)
        own: Any = (..., *box.slices[-len(extents) :])
        return x[own]

    def run(self, *volumes: Tensor, **others: Any) -> list[Any]:
        """Return what every rank gets of a pass over its blocks of `volumes`."""
        blocks = [[self.block(rank, x) for x in volumes] for rank in self.ranks]
        return self.loop.run(lambda rank: self.nets[rank](*blocks[rank], **others))

    def autocast(self, x: Tensor) -> tuple[list[Any], Any]:
        """Return what every rank gets of its block under autocast to bfloat16, and what one process does."""
        x = x.float()
        for net in (self.whole, *self.nets):
            net.float()
        blocks = [self.block(rank, x) for rank in self.ranks]

        def work(rank: int) -> Any:
            with torch.autocast("cpu", torch.bfloat16):
                return self.nets[rank](blocks[rank])

        with torch.autocast("cpu", torch.bfloat16):
            wanted = self.whole(x)
        return self.loop.run(work), wanted

    def equals(self, found: list[Any], wanted: Tensor) -> bool:
        """Tell whether every rank has its block of a volume, or all of it."""
        own = [one if one.shape == wanted.shape else self.block(rank, wanted) for rank, one in enumerate(found)]
        return all(torch.allclose(one, other, rtol=0, atol=TOLERANCE) for one, other in zip(found, own, strict=True))


def volume(channels: int = 1, shape: tuple[int, ...] = SHAPE) -> Tensor:
    """Return a batch of two, the same every time."""
    return torch.randn(2, channels, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


class Net(nn.Module):
    """Asks for extents, so that no trace keeps it; the test gives what it does between two convolutions."""

    def __init__(self, operation: Callable[..., Any] = lambda _, x: x) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.last = nn.Conv3d(1, 2, 3, padding=1), nn.Conv3d(2, 1, 3, padding=1)
        self.drop, self.operation, self.gain = nn.Dropout(0.5), operation, 1.0

    def forward(self, x: Tensor, **others: Any) -> Any:
        """Convolve, do what the test wants, and convolve."""
        x = self.first(x) * (self.gain * x.shape[2])
        return self.last(self.drop(self.operation(self, x, **others)))

    def receptive_field(self) -> int:
        """Return a number: methods of a network stay its own."""
        return 5


def evaluated(operation: Callable[..., Any] = lambda _, x: x) -> nn.Module:
    """Return a network in evaluation, which drops nothing."""
    return Net(operation).eval()
