"""Tests of the lognormal overdensity against linear theory."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
from colossus.cosmology.cosmology import Cosmology
from numpy.typing import NDArray
from powerbox import get_power

from tests.support import processes
from voxload.demo.density import OMEGA_B, DensityGrid, LinearSpectrum
from voxload.demo.parameters import to_physical
from voxload.errors import UsageError

GRID = DensityGrid(32, 16.0)
MIDDLE = to_physical([0, 0, 0, 0])


def binned(grid: DensityGrid, spectrum: LinearSpectrum, redshift: float, edges: NDArray[np.float64]) -> list[float]:
    """Return the mean of the theoretical power over the grid's own modes in each bin of k."""
    axis = 2 * np.pi * np.fft.fftfreq(grid.size, grid.cell)
    k = np.sqrt(axis[:, None, None] ** 2 + axis[:, None] ** 2 + axis**2)
    bins = itertools.pairwise(edges)
    return [float(spectrum.power(k[(k >= low) & (k < high)], redshift).mean()) for low, high in bins]


@pytest.mark.few_cases(3)
@pytest.mark.parametrize(("unit", "redshift"), [((0, 0, 0, 0), 0.0), ((1, 1, -1, -1), 0.5), ((-1, -1, 1, 1), 3.0)])
def test_the_measured_spectrum_is_the_linear_one(unit: tuple[int, ...], redshift: float) -> None:
    """In an ensemble powerbox measures the spectrum that was asked for, in every bin up to the Nyquist wave number."""
    spectrum = GRID.spectrum(to_physical(unit))
    edges = np.linspace(1.5 * 2 * np.pi / GRID.width, np.pi / GRID.cell, 13)
    measured = np.array(
        [
            get_power(
                GRID.overdensity(spectrum, redshift, seed=seed), GRID.width, bins=edges, dimensionless=False, nthreads=1
            ).power
            for seed in range(40)
        ]
    )
    error = measured.std(axis=0, ddof=1) / np.sqrt(len(measured))
    deviation = (measured.mean(axis=0) - binned(GRID, spectrum, redshift, edges)) / error
    assert np.abs(deviation).max() < 4
    # The bins scatter together in a lognormal field, so that chi^2 per bin may be somewhat above 1.
    assert np.mean(deviation**2) < 3
    # The comparison must mean something: a spectrum wrong by a tenth would be seen in most bins.
    assert np.median(error / measured.mean(axis=0)) < 0.025


def test_the_spectrum_is_that_of_colossus() -> None:
    """The spline stays within 1e-4 of colossus on every wave number of the grid; sigma_8 is the normalisation."""
    omega_m, sigma_8, n_spec, h_0 = (float(value) for value in MIDDLE)
    reference = Cosmology(
        name="reference", flat=True, Om0=omega_m, Ob0=OMEGA_B, H0=h_0, sigma8=sigma_8, ns=n_spec,
        relspecies=False, interpolation=False, persistence="", print_warnings=False,
    )  # fmt: skip
    k = np.geomspace(2 * np.pi / GRID.width, np.sqrt(3) * np.pi / GRID.cell, 731)
    np.testing.assert_allclose(GRID.spectrum(MIDDLE).power(k, 0.0), reference.matterPowerSpectrum(k), rtol=1e-4)
    assert reference.sigma(8.0) == pytest.approx(sigma_8, rel=1e-3)


def test_growth_falls_with_redshift_and_is_one_today() -> None:
    """The growth factor is 1 at z = 0, falls, and nears 1 / (1 + z) while matter rules."""
    spectrum = GRID.spectrum(MIDDLE)
    growth = [spectrum.growth(redshift) for redshift in (0.0, 0.5, 1.5, 3.0, 9.0)]
    assert growth[0] == pytest.approx(1.0)
    assert all(later > earlier for later, earlier in itertools.pairwise(growth))
    assert growth[4] / growth[3] == pytest.approx(0.4, rel=0.02)


def test_variance_grows_with_sigma_8() -> None:
    """The variance of the field follows sigma_8 squared: the ratio at the ends of its range is (0.96 / 0.64)^2."""
    ends = [GRID.spectrum(to_physical([0, end, 0, 0])) for end in (-1, 1)]
    low, high = (np.mean([GRID.overdensity(spectrum, 0.0, seed=seed).var() for seed in range(12)]) for spectrum in ends)
    assert high / low == pytest.approx((0.96 / 0.64) ** 2, rel=0.1)


def test_overdensity_is_never_below_empty_and_zero_on_average() -> None:
    """Delta stays above -1 (no negative matter) and its mean over an ensemble is 0 within the statistical error."""
    spectrum = GRID.spectrum(MIDDLE)
    fields = [GRID.overdensity(spectrum, 0.0, seed=seed) for seed in range(12)]
    means = np.array([delta.mean() for delta in fields])
    assert min(delta.min() for delta in fields) > -1
    assert abs(means.mean()) < 4 * means.std(ddof=1) / np.sqrt(len(means))


def test_one_seed_is_one_universe_at_every_redshift() -> None:
    """Fields of one seed correlate strongly between redshifts, those of two seeds do not."""
    spectrum = GRID.spectrum(MIDDLE)
    today, early = (np.log1p(GRID.overdensity(spectrum, redshift, seed=3)).ravel() for redshift in (0.0, 3.0))
    other = np.log1p(GRID.overdensity(spectrum, 0.0, seed=4)).ravel()
    assert np.corrcoef(today, early)[0, 1] > 0.95
    assert abs(np.corrcoef(today, other)[0, 1]) < 0.1


@pytest.mark.parametrize("cell", [12.0, 16.0, 32.0])
def test_wide_cells_carry_every_universe(cell: float) -> None:
    """From 12 Mpc/h on, a lognormal field exists over the whole parameter range."""
    DensityGrid(16, cell).check()


def test_narrow_cells_are_refused() -> None:
    """With cells of 4 Mpc/h no lognormal field has the linear spectrum: an error with the remedy."""
    with pytest.raises(UsageError, match=r"4 Mpc/h.*12 Mpc/h or more"):
        DensityGrid(32, 4.0).check()


@pytest.mark.parametrize(("size", "cell"), [(31, 16.0), (6, 16.0), (32, 0.0), (32, float("nan"))])
def test_impossible_grids_are_refused(size: int, cell: float) -> None:
    """Odd or tiny sizes and widths that are no width raise UsageError."""
    with pytest.raises(UsageError, match=r"size|cell"):
        DensityGrid(size, cell)


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("missing", ["colossus", "powerbox", "scipy.interpolate"])
def test_a_missing_extra_names_its_remedy(missing: str) -> None:
    """Without one of the libraries of the extra, importing says what to install."""
    program = f"""
import sys
sys.modules[{missing!r}] = None
from voxload.errors import UsageError
try:
    import voxload.demo.universes
except UsageError as error:
    print(error)
"""
    run = processes.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert 'pip install "voxload[demo]"' in run.stdout


@pytest.mark.long
def test_nothing_is_written_outside(tmp_path: Path) -> None:
    """The library colossus keeps no tables in the home folder."""
    program = """
from voxload.demo.density import DensityGrid
from voxload.demo.parameters import to_physical
grid = DensityGrid(8, 16.0)
grid.overdensity(grid.spectrum(to_physical([0, 0, 0, 0])), 0.5, seed=0)
"""
    environment = {"HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    processes.run([sys.executable, "-c", program], env=environment, cwd=tmp_path, check=True)
    assert list(tmp_path.iterdir()) == []
