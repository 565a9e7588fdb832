"""Setups: ways to deal samples and their blocks out to ranks; pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from voxload.grid import ProcessGrid
from voxload.plan.platform.calibration import Company

Spatial = tuple[int, int, int]
_FLAT = 8
"""Blocks up to which cutting depth alone is looked at, beside the grid with the smallest faces."""


@dataclass(frozen=True, slots=True)
class Setup:
    """Who has what: sample groups of ranks, and blocks of each sample."""

    spatial: Spatial
    """Blocks along (D, H, W)."""
    groups: int
    """Sample groups; with stages, pipelines of several."""
    samples: int
    """Of one group's batch."""
    stages: int = 1
    """Groups of ranks, one behind the other, that have parts of the network."""
    microbatches: int = 1
    """That a batch goes through stages in."""

    @property
    def ranks(self) -> int:
        """All of them."""
        return self.groups * self.stages * prod(self.spatial)

    @property
    def at_once(self) -> int:
        """Samples that a rank computes at once."""
        return self.samples // self.microbatches

    @property
    def company(self) -> Company:
        """What a rank has to do with others."""
        if prod(self.spatial) > 1:
            return Company.BLOCKS
        return Company.REPLICAS if self.groups > 1 else Company.APART

    @property
    def grid(self) -> ProcessGrid:
        """The grid, seen from a rank in the middle of a group in the middle."""
        return self.stage_grid(0)

    def stage_grid(self, stage: int) -> ProcessGrid:
        """Return the grid, seen from a rank in the middle of a stage of the pipeline in the middle."""
        grid = ProcessGrid(self.spatial, self.ranks)
        middle = tuple(count // 2 for count in self.spatial)
        return grid.at(grid.rank_of(self.groups // 2 * self.stages + stage, middle))

    def replicas(self, stage: int = 0) -> range | list[int]:
        """Return the ranks that have the weights of a stage."""
        if self.stages == 1:
            return range(self.ranks)
        blocks = prod(self.spatial)
        return [rank for rank in range(self.ranks) if rank // blocks % self.stages == stage]

    def describe(self) -> str:
        """Return it as people write it; stages as ``p2``.

        >>> Setup((2, 2, 1), 4, 2).describe(), Setup((2, 2, 1), 4, 8, 2, 8).describe()
        ('4 x 2x2x1', '4 x 2x2x1 p2')
        """
        stages = f" p{self.stages}" if self.stages > 1 else ""
        return f"{self.groups} x {'x'.join(map(str, self.spatial))}{stages}"


def setups(shape: Sequence[int], batch: int, ranks: Sequence[int]) -> Iterator[Setup]:
    """Yield ways to deal out batches of volumes to numbers of ranks; each rank has a block, and groups as many samples.

    Parameters
    ----------
    shape
        Extents (D, H, W).
    batch
        Samples of a step.
    ranks
        Numbers of ranks.
    """
    for count in ranks:
        by_blocks = defaultdict[int, list[Spatial]](list)
        for spatial in _divisions(count, shape):
            groups = count // prod(spatial)
            if groups <= batch and batch % groups == 0:
                by_blocks[prod(spatial)].append(spatial)
        for blocks, found in sorted(by_blocks.items()):
            groups = count // blocks
            for spatial in _worth_a_look(found, shape):
                yield Setup(spatial, groups, batch // groups)


def pipelined(shape: Sequence[int], batch: int, ranks: Sequence[int], most: int) -> Iterator[Setup]:
    """Yield setups of up to `most` stages, each of which computes one sample at a time.

    What `torch.distributed.pipelining.Schedule1F1B` asks for is kept to: as many microbatches as stages, or more.
    """
    for count in ranks:
        for stages in range(2, most + 1):
            if count % stages == 0:
                for each in setups(shape, batch, [count // stages]):
                    if each.samples >= stages:
                        yield replace(each, stages=stages, microbatches=each.samples)


def _divisions(ranks: int, shape: Sequence[int]) -> Iterator[Spatial]:
    """Yield all grids whose blocks divide a number of ranks; axes of equal extent are cut in order, depth first."""
    depth, height, width = shape
    for d in _divisors(ranks, depth):
        for h in _divisors(ranks // d, height):
            for w in _divisors(ranks // d // h, width):
                if (depth != height or d >= h) and (height != width or h >= w):
                    yield d, h, w


def _divisors(number: int, most: int) -> list[int]:
    return [each for each in range(1, min(number, most) + 1) if number % each == 0]


def _worth_a_look(found: Sequence[Spatial], shape: Sequence[int]) -> list[Spatial]:
    ordered = sorted(found, key=lambda spatial: (_faces(spatial, shape), spatial))
    depth_alone = [each for each in found if each[1:] == (1, 1)]
    return list(dict.fromkeys([ordered[0], *(each for each in depth_alone if prod(each) <= _FLAT)]))


def _faces(spatial: Spatial, shape: Sequence[int]) -> float:
    """Return the voxels at the faces that a block has with others."""
    block = [extent / count for extent, count in zip(shape, spatial, strict=True)]
    return sum(min(count - 1, 2) * prod(block) / width for count, width in zip(spatial, block, strict=True))
