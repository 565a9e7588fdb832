"""Lognormal overdensity: the one file that stands on colossus and powerbox (the extra ``demo``).

The linear power spectrum is Eisenstein & Hu (1998, ApJ 496, 605) normalised to sigma_8, times the square of
the linear growth factor D(z) / D(0). A lognormal field (Coles & Jones 1991, MNRAS 248, 1) has exactly that
spectrum when the Gaussian field below it has the correlation function ln(1 + xi): which is possible only
where no mode of that Gaussian field needs a negative power.
"""

from __future__ import annotations

import itertools
import warnings
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from voxload.demo.parameters import PARAMETERS, to_physical
from voxload.errors import UsageError

try:
    from colossus.cosmology.cosmology import Cosmology
    from powerbox import LogNormalPowerBox
    from scipy.interpolate import CubicSpline
except ImportError as error:
    raise UsageError(
        "the demo's universes need colossus, powerbox and scipy",
        found=str(error),
        remedy='pip install "voxload[demo]"',
    ) from error

OMEGA_B = 0.045
"""Baryon density of every universe; cosmoUniverse does not vary it either."""

_SPLINE_POINTS = 256
"""Knots of the spectrum, even in log k: the spline is within 1e-4 of colossus, the acoustic wiggles included."""


class LinearSpectrum:
    """The linear matter power spectrum and growth of one flat LCDM universe.

    Parameters
    ----------
    physical
        Omega_m, sigma_8, N_spec, H_0 (km/s/Mpc).
    k_min, k_max
        The range of wave numbers that will be asked for, in h/Mpc.

    Notes
    -----
    Immutable; safe to use from several threads.
    """

    def __init__(self, physical: NDArray[np.float64], *, k_min: float, k_max: float) -> None:
        omega_m, sigma_8, n_spec, h_0 = (float(value) for value in physical)
        # persistence: colossus keeps tables in the home folder by default. interpolation: it would fill its own
        # tables over 40 decades of k first. relspecies: the growth integral and sigma_8 are those of plain LCDM.
        self._cosmology = Cosmology(
            name="voxload-demo",
            flat=True,
            Om0=omega_m,
            Ob0=OMEGA_B,
            H0=h_0,
            sigma8=sigma_8,
            ns=n_spec,
            relspecies=False,
            interpolation=False,
            persistence="",
            print_warnings=False,
        )
        # A little wider than asked, so that rounding never leads outside the table.
        k = np.geomspace(k_min * 0.99, k_max * 1.01, _SPLINE_POINTS)
        self._growth_today = self._cosmology.growthFactorUnnormalized(0.0)
        self._log_power = CubicSpline(np.log(k), np.log(self._cosmology.matterPowerSpectrum(k)), extrapolate=False)

    def power(self, k: NDArray[np.float64], redshift: float) -> NDArray[np.float64]:
        """Return the power in (Mpc/h)^3 at wave numbers `k` (h/Mpc); NaN outside the range of the constructor."""
        power: NDArray[np.float64] = np.exp(self._log_power(np.log(k))) * self.growth(redshift) ** 2
        return power

    def growth(self, redshift: float) -> float:
        """Return the linear growth factor, 1 at redshift 0."""
        return float(self._cosmology.growthFactorUnnormalized(redshift) / self._growth_today)


@dataclass(frozen=True)
class DensityGrid:
    """A periodic cube of cells on which overdensities are drawn.

    The field holds the modes of the grid and no others: its spectrum is the linear one up to the grid's corner
    wave number and zero above. Cells must be wide enough for a lognormal field to have that spectrum; `check`
    tells.
    """

    size: int
    """Cells along each axis; even, at least 8."""
    cell: float
    """Width of a cell in Mpc/h."""

    def __post_init__(self) -> None:
        if self.size < 8 or self.size % 2:
            raise UsageError("size", found=str(self.size), expected="an even number of cells, at least 8")
        if not 0 < self.cell < np.inf:
            raise UsageError("cell", found=str(self.cell), expected="a width in Mpc/h above 0")

    @cached_property
    def width(self) -> float:
        """Width of the cube in Mpc/h."""
        return self.size * self.cell

    def spectrum(self, physical: NDArray[np.float64]) -> LinearSpectrum:
        """Return the linear spectrum over this grid's wave numbers."""
        corner = np.sqrt(3) * np.pi / self.cell
        return LinearSpectrum(physical, k_min=2 * np.pi / self.width, k_max=corner)

    def overdensity(self, spectrum: LinearSpectrum, redshift: float, *, seed: int) -> NDArray[np.float64]:
        """Return one lognormal overdensity delta >= -1, float64 ``(size, size, size)``.

        Equal seeds give equal phases, so that the fields of one seed at several redshifts are one universe at
        several times. Safe to call from several threads.
        """
        delta: NDArray[np.float64] = self._box(spectrum, redshift, seed=seed).delta_x()
        return delta

    def check(self) -> None:
        """Raise UsageError unless every universe of the parameter range exists on this grid.

        The strongest clustering decides: redshift 0, at one of the corners of the range. Not safe to call
        while other threads run, because it catches warnings.
        """
        for corner in itertools.product((-1.0, 1.0), repeat=len(PARAMETERS)):
            spectrum = self.spectrum(to_physical(corner))
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    self._box(spectrum, 0.0, seed=0).gaussian_power_array()
            except (ValueError, UserWarning) as error:
                raise UsageError(
                    "cell",
                    found=f"{self.cell:g} Mpc/h, where no lognormal field has the linear spectrum",
                    expected="wider cells",
                    remedy="cells of 12 Mpc/h or more are wide enough",
                ) from error

    def _box(self, spectrum: LinearSpectrum, redshift: float, *, seed: int) -> LogNormalPowerBox:
        """Return powerbox's generator of this grid; one thread, because numpy's FFT always gives the same bits."""
        return LogNormalPowerBox(
            shape=(self.size,) * 3,
            size=(self.width,) * 3,
            pk=lambda k: spectrum.power(k, redshift),
            seed=seed,
            nthreads=1,
        )
