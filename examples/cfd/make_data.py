"""Make snapshots of decaying turbulence: velocity components and pressure, an HDF5 file each, as solvers leave them.

python examples/cfd/make_data.py snapshots

Each run begins with a random velocity without divergence. A pseudo-spectral method takes it on: the incompressible
Navier-Stokes equations in a periodic box, second order in time. Pressure is that of the Poisson equation, over
the density.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

SIZE = 32
"""Cells along each axis of a box with edges of 2 pi."""
VISCOSITY = 0.01
STEP = 0.02
"""Time of a step: a cell is crossed in some ten of them."""
AXES = (1, 2, 3)
Complex = NDArray[np.complex128]

_along = np.fft.fftfreq(SIZE, 1 / SIZE)
K = np.stack(np.meshgrid(_along, _along, np.fft.rfftfreq(SIZE, 1 / SIZE), indexing="ij"))
"""Wave numbers of a transformed field, along (d, h, w)."""
K2 = (K**2).sum(0)
SOLVED = np.where(K2 > 0, K2, 1)
KEPT = (np.abs(K) < SIZE / 3).all(0)
"""What a product of two fields leaves free of aliases."""


def real(hat: Complex) -> NDArray[np.float64]:
    """Return the fields, (C, D, H, W), of transformed ones."""
    return np.asarray(np.fft.irfftn(hat, s=(SIZE,) * 3, axes=AXES), np.float64)


def advection(velocity: Complex) -> Complex:
    """Return the transform of the divergence of u_i u_j, for i from d to w."""
    u = real(velocity)
    products = [np.fft.rfftn(u * each, axes=AXES) for each in u]
    return np.asarray([1j * KEPT * (K * each).sum(0) for each in products])


def projected(velocity: Complex) -> Complex:
    """Return the part without divergence."""
    return np.asarray(velocity - K * (K * velocity).sum(0) / SOLVED)


def stepped(velocity: Complex) -> Complex:
    """Return the velocity one step later (Heun's method; viscosity exactly)."""
    decay = np.exp(-VISCOSITY * K2 * STEP)
    first = -projected(advection(velocity))
    guess = decay * (velocity + STEP * first)
    return np.asarray(decay * (velocity + STEP / 2 * first) - STEP / 2 * projected(advection(guess)))


def pressure(velocity: Complex) -> NDArray[np.float64]:
    """Return the pressure over the density, (D, H, W): what keeps the velocity free of divergence."""
    hat = 1j * (K * advection(velocity)).sum(0) / SOLVED
    return np.asarray(real(hat[None])[0])


def begun(random: np.random.Generator) -> Complex:
    """Return the transform of a random velocity of root mean square 1, most of it at wave numbers from 2 to 6."""
    noise = np.fft.rfftn(random.standard_normal((3, SIZE, SIZE, SIZE)), axes=AXES)
    k = np.sqrt(SOLVED)
    hat = projected(noise * k * np.exp(-((k / 3.5) ** 2)) * KEPT * (K2 > 0))
    return np.asarray(hat / np.sqrt((real(hat) ** 2).sum(0).mean() / 3))


def main() -> None:
    """Run, and write a snapshot every few steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--snapshots", type=int, default=6, help="of each run")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for run in range(arguments.runs):
        velocity = begun(np.random.default_rng(run))
        for number in range(arguments.snapshots):
            for _ in range(5):
                velocity = stepped(velocity)
            with h5py.File(arguments.folder / f"run{run}_{number:03}.h5", "w") as file:
                for name, field in zip(("ud", "uh", "uw", "p"), (*real(velocity), pressure(velocity)), strict=True):
                    file.create_dataset(name, data=field.astype("<f4"))
                file.attrs.update({"time": (number + 1) * 5 * STEP, "viscosity": VISCOSITY})
    print(f"{arguments.runs} runs of {arguments.snapshots} snapshots of {SIZE}^3 cells are in {arguments.folder}/")


if __name__ == "__main__":
    main()
