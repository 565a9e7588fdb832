"""Samples: raw universes as the simulations write them, made up."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt

CHANNELS = 4
_PLANES = 32
"""Planes that are drawn; they are repeated, turned a little, farther apart than any codec looks back."""
_SCALES = (1, 2, 4, 8, 16, 32)
_AMPLITUDE = 0.35
"""Deviation of the logarithm of the density on each scale."""
_DENSITY = 2.0
"""Particles a voxel."""
_GROWTH = 1.15
"""How much stronger the contrast is from one redshift to the next."""


def make_cubes(folder: Path, cubes: int, extent: int, *, has_noise: bool = False) -> Path:
    """Write universes of `extent`^3 x 4 counts into a folder of their own and return it; those there are kept.

    A file is ``full`` (D, H, W, redshift) int16, contiguous, and ``unitPar``: the layout of cosmoUniverse.
    Of one that `has_noise`, every seventh slab is such as no codec makes smaller.
    """
    source = folder / f"{'noisy' if has_noise else 'universes'}-{cubes}x{extent}"
    source.mkdir(exist_ok=True)
    planes = None
    for number in range(cubes):
        path = source / f"universe{number:02}.hdf5"
        if not path.exists():
            planes = _planes(extent) if planes is None else planes
            _write(path, planes, number, has_noise=has_noise)
    return source


def _write(path: Path, planes: npt.NDArray[np.int16], number: int, *, has_noise: bool) -> None:
    extent = planes.shape[1]
    half = path.with_suffix(".part")
    with h5py.File(half, "w") as file:
        cube = file.create_dataset("full", (extent, extent, extent, CHANNELS), dtype="<i2")
        for first in range(0, extent, _PLANES):
            turn = (13 * number + 5 * first, 29 * number + 7 * first)
            slab = np.roll(planes, turn, (1, 2))
            if has_noise and first // _PLANES % 7 == 1:
                slab = np.random.default_rng(first).integers(-(2**15), 2**15, planes.shape, np.int16)
            cube[first : first + _PLANES] = slab[: extent - first]
        file["unitPar"] = np.array([0.1, -0.2, 0.3, -0.4], dtype=np.float32) + np.float32(number / 100)
    half.rename(path)


def _planes(extent: int) -> npt.NDArray[np.int16]:
    """Return Poisson counts of a lognormal field with structure on several scales; lz4 stores a quarter of them."""
    rng = np.random.default_rng(extent)
    field = np.zeros((_PLANES, extent, extent), np.float32)
    for scale in _SCALES:
        coarse = rng.standard_normal([-(-size // scale) for size in field.shape], dtype=np.float32)
        for axis in range(3):
            coarse = np.repeat(coarse, scale, axis)
        field += _AMPLITUDE * coarse[:, :extent, :extent]
    counts = np.empty((*field.shape, CHANNELS), np.int16)
    for channel in range(CHANNELS):
        contrast = field * _GROWTH**channel
        counts[..., channel] = np.minimum(rng.poisson(_DENSITY * np.exp(contrast - contrast.var() / 2)), 2**15 - 1)
    return counts
