"""Make raw cubes of the matter density and a table of their parameters, as a set of simulations leaves them.

python examples/cosmology/make_data.py raw

Each universe is a lognormal field in a periodic box. Its power spectrum has the shape that Omega_m gives it (BBKS, a
flat universe with h = 0.7) and the amplitude that sigma_8 gives it. A cube is a headerless file of float32 in Fortran
order.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SIZE = 32
"""Voxels along each axis."""
BOX = 128.0
"""Edge of the box, in Mpc/h."""
HUBBLE = 0.7


def power(k: NDArray[np.float64], omega_m: float) -> NDArray[np.float64]:
    """Return the shape of the linear power spectrum, at wave numbers in h/Mpc (Bardeen et al. 1986)."""
    q = np.maximum(k, 1e-9) / (omega_m * HUBBLE)
    series = 1 + 3.89 * q + (16.1 * q) ** 2 + (5.46 * q) ** 3 + (6.71 * q) ** 4
    transfer = np.log1p(2.34 * q) / (2.34 * q) * series**-0.25
    return np.asarray(k * transfer**2)


def variance_at_8(omega_m: float) -> float:
    """Return the variance in spheres of 8 Mpc/h that `power` gives."""
    k = np.geomspace(1e-4, 50, 4000)
    x = 8 * k
    sphere = 3 * (np.sin(x) - x * np.cos(x)) / x**3
    return float(np.trapezoid(power(k, omega_m) * sphere**2 * k**2 / (2 * np.pi**2), k))


def universe(random: np.random.Generator, omega_m: float, sigma_8: float) -> NDArray[np.float32]:
    """Return the density over its mean, (SIZE, SIZE, SIZE)."""
    along = 2 * np.pi * np.fft.fftfreq(SIZE, BOX / SIZE)
    half = 2 * np.pi * np.fft.rfftfreq(SIZE, BOX / SIZE)
    k = np.sqrt(along[:, None, None] ** 2 + along[None, :, None] ** 2 + half**2)
    spectrum = sigma_8**2 / variance_at_8(omega_m) * power(k, omega_m)
    white = np.fft.rfftn(random.standard_normal((SIZE,) * 3))
    field = np.fft.irfftn(white * np.sqrt(spectrum * (SIZE / BOX) ** 3), axes=(0, 1, 2))
    return np.asarray(np.exp(field - field.var() / 2), "<f4")


def main() -> None:
    """Draw parameters, and write cubes and table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=160, help="universes")
    arguments = parser.parse_args()
    (arguments.folder / "cubes").mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    rows = ["sample,omega_m,sigma_8"]
    for number in range(arguments.count):
        omega_m, sigma_8 = random.uniform(0.1, 0.5), random.uniform(0.6, 1.0)
        cube = universe(random, omega_m, sigma_8)
        cube.ravel(order="F").tofile(arguments.folder / "cubes" / f"box{number:03}.raw")
        rows.append(f"box{number:03},{omega_m:.5f},{sigma_8:.5f}")
    (arguments.folder / "parameters.csv").write_text("\n".join(rows) + "\n")
    print(f"{arguments.count} cubes of {SIZE}^3 voxels and parameters.csv are in {arguments.folder}/")


if __name__ == "__main__":
    main()
