"""The four cosmological parameters that are drawn for each universe, and their scaling to [-1, 1].

Names and middle values are those of the cosmoUniverse data set, as its generation scripts give them
(https://github.com/NERSC/cosmoflow-sims, ``janWorkflow/prepMusic_4par.sh``). The half width is 20 % where
cosmoUniverse has 10 %: cubes of 32 cells hold far less to learn from than its cubes of 512.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from voxload.errors import UsageError


@dataclass(frozen=True, slots=True)
class Parameter:
    """A cosmological parameter that is drawn uniformly around a middle value."""

    name: str
    """Name as the raw files spell it."""
    middle: float
    """Middle of the range; in the unit that the name implies (``H_0``: km/s/Mpc; the others have none)."""
    spread: float = 0.2
    """Half width of the range as a fraction of `middle`."""


PARAMETERS = (
    Parameter("Omega_m", 0.3),
    Parameter("sigma_8", 0.8),
    Parameter("N_spec", 0.96),
    Parameter("H_0", 70.0),
)
"""The parameters in the order of every ``unitPar`` and ``physPar``."""

NAMES = tuple(parameter.name for parameter in PARAMETERS)
"""Their names, in the same order."""

_MIDDLE = np.array([parameter.middle for parameter in PARAMETERS])
_HALF_WIDTH = np.array([parameter.middle * parameter.spread for parameter in PARAMETERS])


def to_physical(unit: ArrayLike) -> NDArray[np.float64]:
    """Return the physical values of parameters that are scaled to [-1, 1].

    Parameters
    ----------
    unit
        Scaled values, shape ``(..., 4)`` in the order of `PARAMETERS`.

    Returns
    -------
    ndarray
        float64 of the same shape.

    Raises
    ------
    UsageError
        When the last axis does not hold one value per parameter, or a value lies outside [-1, 1].
    """
    scaled = _one_each(unit)
    if not np.all(np.abs(scaled) <= 1):
        raise UsageError("scaled parameters", found=f"{scaled.tolist()}", expected="values in [-1, 1]")
    physical: NDArray[np.float64] = _MIDDLE + scaled * _HALF_WIDTH
    return physical


def to_unit(physical: ArrayLike) -> NDArray[np.float64]:
    """Return parameters scaled to [-1, 1], the inverse of `to_physical`; values outside the range go beyond 1."""
    unit: NDArray[np.float64] = (_one_each(physical) - _MIDDLE) / _HALF_WIDTH
    return unit


def _one_each(values: ArrayLike) -> NDArray[np.float64]:
    """Return `values` as float64 when their last axis holds one value per parameter."""
    array = np.asarray(values, np.float64)
    if array.ndim == 0 or array.shape[-1] != len(PARAMETERS):
        raise UsageError("parameters", found=f"shape {array.shape}", expected=f"(..., {len(PARAMETERS)})")
    return array
