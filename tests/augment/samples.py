"""Samples of the tests of augmentation, stored and as whole arrays; and what plain numpy makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

import voxload
from voxload.augment import Augment, Placement
from voxload.geometry import Boundary, Box, Halo

Volume = npt.NDArray[Any]

CUBE, BRICK = (9, 9, 9), (7, 10, 7)
"""Extents that no grid of two divides, all equal and two of them equal."""
FIELDS = {"x": "full", "y": "labels", "v": "velocity"}
AXES = {"x": "DHWC", "y": "DHW", "v": "CDHW"}


@dataclass(frozen=True)
class Stored:
    """One sample in a file of its own, and what is in it."""

    path: Path
    whole: dict[str, Volume]
    """Each field as ``(C, D, H, W)``."""

    def open(self, **arguments: Any) -> voxload.VolumeDataset:
        """Return it as a data set of all its fields."""
        return voxload.VolumeDataset(self.path, fields=FIELDS, axes=AXES, **arguments)


def augmented(volume: Volume, placement: Placement, halo: Halo, boundary: Boundary) -> Volume:
    """Return a whole sample rolled, turned and padded, by numpy alone; its window must be all of it, moved."""
    turn = placement.orientation
    assert placement.window.shape == volume.shape[1:]
    rolled = np.roll(volume, [-begin for begin in placement.window.start], (1, 2, 3))
    turned = np.flip(np.transpose(rolled, (0, *(1 + axis for axis in turn.axes))), _flipped(placement))
    return _padded(turned, halo, boundary)


def cropped(volume: Volume, placement: Placement, halo: Halo, boundary: Boundary) -> Volume:
    """Return a window of a whole sample, with what lies around it, turned, by numpy alone."""
    turn, window = placement.orientation, placement.window
    wide = Halo.parse(24)
    padded = _padded(volume, wide, boundary)
    around = max(*halo.low, *halo.high)
    spans = (slice(lo + 24 - around, hi + 24 + around) for lo, hi in zip(window.start, window.stop, strict=True))
    turned = np.transpose(padded[(slice(None), *spans)], (0, *(1 + axis for axis in turn.axes)))
    whole: Volume = np.flip(turned, _flipped(placement))
    sides = zip(halo.low, halo.high, whole.shape[1:], strict=True)
    part: Volume = whole[(slice(None), *(slice(around - low, n - around + high) for low, high, n in sides))]
    return part


def _flipped(placement: Placement) -> tuple[int, ...]:
    return tuple(1 + axis for axis in range(3) if placement.orientation.flips[axis])


def _padded(volume: Volume, halo: Halo, boundary: Boundary) -> Volume:
    mode: Any = "wrap" if boundary is Boundary.PERIODIC else "constant"
    return np.pad(volume, [(0, 0), *zip(halo.low, halo.high, strict=True)], mode=mode)


def make(path: Path, shape: tuple[int, int, int], seed: int = 0) -> Stored:
    """Write a sample whose voxels are all different, so that none can stand for another."""
    rng = np.random.default_rng(seed)
    x = rng.permutation(np.arange(2 * prod(shape))).reshape(2, *shape).astype("<i2")
    y = rng.integers(0, 4, (1, *shape)).astype("u1")
    v = rng.normal(size=(4, *shape)).astype("<f4")
    with h5py.File(path, "w") as file:
        file.create_dataset("full", data=np.moveaxis(x, 0, -1), chunks=(4, 4, 4, 2), compression="gzip", shuffle=True)
        file.create_dataset("labels", data=y[0], chunks=(4, 3, 5))
        file["velocity"] = v
    return Stored(path, {"x": x, "y": y, "v": v})


def assembled(parts: list[tuple[Box, Volume]], extents: tuple[int, ...], halo: Halo) -> Volume:
    """Put the blocks of all ranks, each with its halo, where they belong; where two overlap, they must agree."""
    whole = np.zeros((len(parts[0][1]), *(n + a + b for n, a, b in zip(extents, halo.low, halo.high, strict=True))))
    seen = np.zeros(whole.shape, bool)
    for box, block in parts:
        place = (slice(None), *box.shift(halo.low).slices)
        assert np.array_equal(whole[place][seen[place]], block[seen[place]])
        whole[place], seen[place] = block, True
    assert seen.all()
    return whole


def of_all_ranks(
    sample: Stored, spatial: tuple[int, int, int], *, augment: Augment, epoch: int, **arguments: Any
) -> list[tuple[Box, list[Volume]]]:
    """Return each rank's box, halo included, and its fields' blocks."""
    found = []
    for rank in range(prod(spatial)):
        grid = voxload.ProcessGrid(spatial, prod(spatial), rank)
        data = sample.open(grid=grid, augment=augment, **arguments)
        data.set_epoch(epoch)
        blocks = [block.numpy() for block in data[0]]
        found.append((data.box(data.volume_shape(0)), blocks))
        data.close()
    return found
