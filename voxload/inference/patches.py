"""Patches: predictions for parts of a sample, of one shape each, put together to those of the whole.

A sample that is smaller than a part stands in the middle of one, with zeros of the standardised voxels around it.
Where parts overlap, what the network says of a voxel is the mean of what it says in each, weighted by how far from the
middle of the part the voxel lies: near its border a network sees less of what is around.

Source: F. Isensee et al., "nnU-Net", Nature Methods 18, 2021, for half overlaps and Gaussian weights, of a deviation of
an eighth of the extent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from math import prod

import torch
from torch import Tensor

from voxload.data.lists.patches import Patches
from voxload.errors import InternalError, UsageError
from voxload.inference.plan import GAUSSIAN, Tiling

Extents = tuple[int, int, int]

_SIGMA = 1 / 8
"""Standard deviation of the weights, in extents of a patch."""
_LEAST = 1e-3
"""Least weight, so that the corners of a sample, which only corners of patches reach, have one."""


@dataclass(frozen=True, slots=True)
class Tile:
    """Which patches of a sample make a batch."""

    indices: tuple[int, ...]
    """Of the patches, in their data set."""
    sample: int
    """Index of the sample."""
    starts: tuple[Extents, ...]
    """First voxel of each patch, in the sample with what is around it."""
    is_last: bool
    """Whether no patch of the sample is left."""


@dataclass(frozen=True, slots=True)
class PatchBatch:
    """Some patches of one sample."""

    sample: str
    """Its id."""
    tile: Tile
    """Where they lie."""
    volumes: Tensor
    """Standardised, ``(B, C, *patch)``."""
    labels: Tensor | None
    """As stored, ``(B, 1, *patch)``; None where there are none."""


def tiles(tiling: Tiling) -> Patches:
    """Return the patches of a tiling."""
    return Patches(tiling.patch, stride=[max(1, round(extent * (1 - tiling.overlap))) for extent in tiling.patch])


def patch_batches(
    patches: Patches, extents: Sequence[Extents], samples: Sequence[int], *, batch_size: int
) -> list[Tile]:
    """Return the batches of some samples' patches, sample by sample; pure.

    `extents` are those of all samples, as `at_least_patch` gives them, whose patches are numbered one behind the other.
    """
    ends = [0, *accumulate(prod(map(len, patches.along(one))) for one in extents)]
    found = []
    for sample in samples:
        starts = [(d, h, w) for d, h, w in product(*patches.along(extents[sample]))]
        for first in range(0, len(starts), batch_size):
            some = tuple(starts[first : first + batch_size])
            indices = tuple(range(ends[sample] + first, ends[sample] + first + len(some)))
            found.append(Tile(indices, sample, some, is_last=first + len(some) == len(starts)))
    return found


class Stitcher:
    """Puts the outputs for one sample's patches together; used by one thread.

    Takes 4 bytes a voxel for each class, and for the weights.

    Parameters
    ----------
    extents
        Of the sample.
    tiling
        How it is parted.
    """

    def __init__(self, extents: Extents, tiling: Tiling) -> None:
        self._own, self._patch = extents, tiling.patch
        self._extents = at_least_patch(extents, tiling.patch)
        self._weights = weights_of(tiling)
        self._sum: Tensor | None = None
        self._total = torch.zeros(self._extents)
        self._labels: Tensor | None = None

    def take(self, batch: PatchBatch, outputs: Tensor) -> None:
        """Add what the network gives for some patches, ``(B, classes, *patch)``."""
        if self._sum is None:
            self._sum = torch.zeros((outputs.shape[1], *self._extents))
        for start, found in zip(batch.tile.starts, outputs.float().cpu(), strict=True):
            part = self._part(start)
            self._sum[(slice(None), *part)] += found * self._weights
            self._total[part] += self._weights
        if batch.labels is not None:
            if self._labels is None:
                self._labels = torch.zeros((1, 1, *self._extents), dtype=batch.labels.dtype)
            for start, labels in zip(batch.tile.starts, batch.labels.cpu(), strict=True):
                self._labels[(0, slice(None), *self._part(start))] = labels

    def outputs(self) -> Tensor:
        """Return the outputs for the whole sample, ``(1, classes, D, H, W)``; once, after the last patch.

        Raises InternalError where voxels are in no patch.
        """
        if self._sum is None or not bool((self._total > 0).all()):
            raise InternalError("patches of a sample", found="voxels in none", expected="each in one at least")
        return self._sum.div_(self._total)[(None, slice(None), *self._inner)]  # no second copy of all classes

    @property
    def labels(self) -> Tensor | None:
        """The labels of the whole sample, ``(1, 1, D, H, W)``, where there are any."""
        return None if self._labels is None else self._labels[(..., *self._inner)]

    @property
    def _inner(self) -> tuple[slice, slice, slice]:
        """The sample in what is around it."""
        begins = (before(own, extent) for own, extent in zip(self._own, self._patch, strict=True))
        d, h, w = (slice(begin, begin + own) for begin, own in zip(begins, self._own, strict=True))
        return d, h, w

    def _part(self, start: Extents) -> tuple[slice, slice, slice]:
        d, h, w = (slice(first, first + extent) for first, extent in zip(start, self._patch, strict=True))
        return d, h, w


def weights_of(tiling: Tiling) -> Tensor:
    """Return the weight of each voxel of a patch, ``(d, h, w)``, 1 at most; pure."""
    weights = torch.ones(tiling.patch)
    if tiling.stitch == GAUSSIAN:
        for axis, extent in enumerate(tiling.patch):
            places = torch.arange(extent, dtype=torch.float64) - (extent - 1) / 2
            along = torch.exp(-0.5 * (places / (_SIGMA * extent)) ** 2)
            weights = weights * along.reshape([-1 if one == axis else 1 for one in range(len(tiling.patch))])
    return weights.clamp_min(_LEAST).float()


def at_least_patch(extents: Sequence[int], patch: Extents) -> Extents:
    """Return a sample's extents with what is around it where it is smaller than a patch; pure.

    >>> at_least_patch((9, 5, 8), (8, 8, 8))
    (9, 8, 8)
    """
    d, h, w = map(max, extents, patch)
    return d, h, w


def before(extent: int, patch: int) -> int:
    """Return the voxels around a sample that lie before it, along one axis; pure."""
    return max(patch - extent, 0) // 2


def padded(volumes: Tensor, patch: Extents) -> Tensor:
    """Return volumes ``(..., D, H, W)`` with zeros around them where they are smaller than a patch."""
    widths: list[int] = []
    for extent, size in zip(reversed(volumes.shape), reversed(patch), strict=False):
        begin = before(extent, size)
        widths += [begin, max(size - extent, 0) - begin]
    return torch.nn.functional.pad(volumes, widths)


def cut(tile: Tile, volumes: Tensor, patch: Extents) -> Tensor:
    """Return the patches of a tile, ``(B, C, *patch)``, out of a padded sample ``(C, D, H, W)``."""
    parts = []
    for start in tile.starts:
        d, h, w = (slice(first, first + extent) for first, extent in zip(start, patch, strict=True))
        parts.append(volumes[:, d, h, w])
    return torch.stack(parts)


def check_tiles(spatial: Sequence[int]) -> None:
    """Refuse patches parted over ranks: each is predicted whole by one."""
    if prod(spatial) > 1:
        raise UsageError(
            "--spatial",
            found=f"{tuple(spatial)} with patches",
            expected="1,1,1: a patch is predicted whole, by one process",
            remedy="leave out --spatial, or predict from whole samples with --patch 0,0,0",
        )
