"""Kernels: they add particles to planes of a periodic grid, one after the other, so that every sum has one order.

numba compiles the kernel of an assignment when it is first asked for and keeps it on disk: one each, for with the order
known its loops are unrolled, and it is three times as fast. Kernels hold no interpreter lock.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numba import float64, int64, types

from voxload.readers.compiling import compiled, part

VECTOR = types.Array(float64, 1, "C")
POINTS = types.Array(float64, 2, "C", readonly=True)
MASSES = types.Array(float64, 1, "C", readonly=True)
INTEGERS = types.Array(int64, 1, "C", readonly=True)

OUTSIDE = 0.01
"""How far outside the box a particle may lie, in boxes: codes wrap positions now and then only, and single precision
rounds them onto the edge. One that is further out has another unit or origin."""
_INFINITE = np.inf

Deposit = Callable[..., int]


@part
def _is_inside(place: float, extent: int) -> bool:
    """Tell whether a particle may lie here, in cells; false for what is no number."""
    return place >= -OUTSIDE * extent and place <= (1.0 + OUTSIDE) * extent


@part
def _cells(first: int, extent: int) -> Any:
    """Return four cells from `first` on; cells wrap."""
    while first < 0:
        first += extent
    while first >= extent:
        first -= extent
    second = first + 1 if first + 1 < extent else 0
    third = second + 1 if second + 1 < extent else 0
    return first, second, third, third + 1 if third + 1 < extent else 0


@part
def _spread(place: float, order: int, extent: int) -> Any:
    """Return weights and cells, four each, of which a particle `place` cells from the first grid point has `order`."""
    first = int(np.floor(place + 1.0 - 0.5 * order))
    f = place - first
    if order == 1:
        weights = (1.0, 0.0, 0.0, 0.0)
    elif order == 2:
        weights = (1.0 - f, f, 0.0, 0.0)
    elif order == 3:
        f -= 1.0
        weights = (0.5 * (0.5 - f) ** 2, 0.75 - f * f, 0.5 * (0.5 + f) ** 2, 0.0)
    else:
        f -= 1.0
        g = 1.0 - f
        second, third = (4.0 - 6.0 * f * f + 3.0 * f * f * f) / 6.0, (4.0 - 6.0 * g * g + 3.0 * g * g * g) / 6.0
        weights = (g * g * g / 6.0, second, third, f * f * f / 6.0)
    return weights, _cells(first, extent)


@part
def _touches(cells: Any, order: int, lowest: int, planes: int) -> bool:
    """Tell whether one of the first `order` cells is on the planes from `lowest` on."""
    is_near = False
    for number in range(order):
        row = cells[number] - lowest
        is_near = is_near or (row >= 0 and row < planes)
    return is_near


@lru_cache(maxsize=4)
def deposit_kernel(order: int) -> Deposit:
    """Return the kernel that spreads particles over `order` cells an axis, 1 to 4."""

    @compiled(VECTOR, POINTS, MASSES, INTEGERS, VECTOR, returns=int64)
    def deposit(sums: Any, positions: Any, masses: Any, grid: Any, scale: Any) -> int:
        """Add particles to some planes and return -1, or the number of the first one that is nowhere.

        Parameters
        ----------
        sums
            The planes, flat, which are added to.
        positions, masses
            Of n particles; masses may be one for all.
        grid
            Extents of the grid (3), first plane and number of planes in `sums`.
        scale
            Cells per unit of length (3) and the place of the first grid point in cells.
        """
        rows, columns, cells, lowest, planes = grid[0], grid[1], grid[2], grid[3], grid[4]
        mass, has_masses = masses[0], len(masses) > 1
        for n in range(len(positions)):
            if has_masses:
                mass = masses[n]
            x, y, z = positions[n, 0] * scale[0], positions[n, 1] * scale[1], positions[n, 2] * scale[2]
            is_inside = _is_inside(x, rows) and _is_inside(y, columns) and _is_inside(z, cells)
            if not (is_inside and mass >= 0.0 and mass < _INFINITE):
                return n
            weights_x, cells_x = _spread(x - scale[3], order, rows)
            if not _touches(cells_x, order, lowest, planes):
                continue
            weights_y, cells_y = _spread(y - scale[3], order, columns)
            weights_z, cells_z = _spread(z - scale[3], order, cells)
            for a in range(order):
                row = cells_x[a] - lowest
                if row < 0 or row >= planes:
                    continue
                for b in range(order):
                    line = (row * columns + cells_y[b]) * cells
                    share = mass * weights_x[a] * weights_y[b]
                    for c in range(order):
                        sums[line + cells_z[c]] += share * weights_z[c]
        return -1

    return deposit
