"""Fields: what the samples hold, made from a seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Field = npt.NDArray[Any]

DTYPES = ("int16", "float32")
"""int16: counts of particles, compressible; float32: a density with noise, hardly compressible."""

_LINE = 64
_COARSE = 4
"""Voxels along each axis that share one mean."""
_SPREAD = 1.2
"""Standard deviation of the logarithm of the density."""
_NOISE = 0.05
"""Relative noise that is added to the float field, which makes its low bytes random."""


def load_field(folder: Path, dtype: str, size: int) -> tuple[Path, Field]:
    """Return the field of `dtype` with its ``.npy`` file in `folder`, which is written when it is not there."""
    path = folder / f"field-{dtype}-{size}.npy"
    if not path.exists():
        unfinished = path.with_suffix(".part.npy")
        np.save(unfinished, make_field(dtype, size))
        unfinished.replace(path)
    return path, np.load(path)


def make_field(dtype: str, size: int) -> Field:
    """Draw a log-normal density on coarse cells, and from it counts or a noisy density, a slab at a time."""
    generator = np.random.default_rng(7)
    density = _density(generator, -(-size // _COARSE))
    field = np.empty((size, size, size), dtype)
    for plane, coarse in enumerate(density):
        rows = slice(plane * _COARSE, min((plane + 1) * _COARSE, size))
        mean = coarse.repeat(_COARSE, 0).repeat(_COARSE, 1)[:size, :size]
        shape = (rows.stop - rows.start, size, size)
        if dtype == "int16":
            field[rows] = generator.poisson(mean, shape)
        else:
            field[rows] = mean * (1 + _NOISE * generator.standard_normal(shape, np.float32))
    return field


def _density(generator: np.random.Generator, cells: int) -> npt.NDArray[np.float32]:
    """Return a positive field of mean 1 whose power falls with the wave number, as that of matter does."""
    noise = np.fft.rfftn(generator.standard_normal((cells,) * 3))
    full, half = np.fft.fftfreq(cells, 1 / cells), np.fft.rfftfreq(cells, 1 / cells)
    square = full[:, None, None] ** 2 + full[None, :, None] ** 2 + half[None, None, :] ** 2
    smooth = np.fft.irfftn(noise / (1 + square) ** 0.9, s=(cells,) * 3, axes=(0, 1, 2))
    smooth *= _SPREAD / smooth.std()
    return np.exp(smooth - _SPREAD**2 / 2).astype(np.float32)


def buffer_like(field: Field) -> Field:
    """Return a touched array of the same type and extents that begins with a line of the caches.

    Allocators of tensors give such; numpy's own begin at any multiple of 16 bytes, which costs whoever copies lines.
    """
    memory = np.zeros(field.nbytes + _LINE, np.uint8)
    start = -memory.ctypes.data % _LINE
    found: Field = memory[start : start + field.nbytes].view(field.dtype).reshape(field.shape)
    return found
