"""Kernels: they add particles to planes of a periodic grid, one after the other, so that every sum has one order.

``core/compute/deposit.c`` is the code; it holds no interpreter lock.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from voxload.core.library import function
from voxload.errors import InternalError

OUTSIDE = 0.01
"""How far outside the box a particle may lie, in boxes: codes wrap positions now and then only, and single precision
rounds them onto the edge. One that is further out has another unit or origin. As in ``core/compute/deposit.c``."""
_LARGEST = 2**48
"""Most cells of an axis: the kernel rounds places by adding 1.5 * 2**52."""
_ORDERS = (1, 2, 3, 4)

Sums = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Deposit = Callable[[Sums, Floats, Floats, Integers, Floats], int]
_deposit = function("deposit_particles", "wrnrbrrn", "i")


@lru_cache(maxsize=len(_ORDERS))
def deposit_kernel(order: int) -> Deposit:
    """Return the kernel that spreads particles over `order` cells an axis, 1 to 4; raises InternalError for others."""
    if order not in _ORDERS:
        raise InternalError("mass assignment", found=f"order {order}", expected="1 to 4")

    def deposit(sums: Sums, positions: Floats, masses: Floats, grid: Integers, scale: Floats) -> int:
        """Add particles to some planes and return -1, or the number of the first one that is nowhere.

        Those before that one are added.

        Parameters
        ----------
        sums
            The planes, flat, which are added to.
        positions, masses
            Of n particles; masses may be one for all.
        grid
            Extents of the grid (3), first plane and number of planes in `sums`.
        scale
            Cells per unit of length (3) and the place of the first grid point in cells, at least 0 and below 1.

        Raises
        ------
        InternalError
            When shapes, types or planes do not belong together.
        """
        _check(sums, positions, masses, grid, scale)
        if not len(positions):
            return -1
        return int(_deposit(sums, positions, len(positions), masses, len(masses) > 1, grid, scale, order))

    return deposit


def _check(sums: Sums, positions: Floats, masses: Floats, grid: Integers, scale: Floats) -> None:
    """Refuse what would lead the kernel out of its arrays."""
    named = (("sums", sums), ("positions", positions), ("masses", masses), ("scale", scale))
    for name, array in named:
        if array.dtype != np.float64 or not (array.flags.c_contiguous and array.flags.aligned):
            raise InternalError(name, found=f"{array.dtype.str}", expected="float64, contiguous and aligned")
    count = len(positions)
    if positions.shape != (count, 3) or masses.shape not in {(count,), (1,)}:
        raise InternalError("particles", found=f"{positions.shape} and {masses.shape}", expected="(n, 3), and n or 1")
    is_grid = grid.dtype == np.int64 and grid.shape == (5,) and grid.flags.aligned
    if not is_grid or scale.shape != (4,) or not 0 <= scale[3] < 1:
        raise InternalError("mesh", found=f"{grid} and {scale}", expected="five integers, and four numbers")
    rows, columns, cells, lowest, planes = grid.tolist()
    are_extents = all(1 <= extent <= _LARGEST for extent in (rows, columns, cells))
    are_planes = 0 <= lowest <= lowest + planes <= rows and sums.shape == (planes * columns * cells,)
    if not (are_extents and are_planes):
        raise InternalError("planes", found=f"{sums.shape} for {grid}", expected="as many sums as cells")
