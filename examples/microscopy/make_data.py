"""Make a light-sheet image of nuclei, OME-Zarr with three resolutions, and the same without noise, to judge by.

python examples/microscopy/make_data.py image

Nuclei are ellipsoids that a microscope blurs, more along z than across. A voxel counts some tens of photons, with the
noise that goes with them, and the camera adds its own. Voxels are 2 x 0.5 x 0.5 micrometres.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

SHAPE = (64, 192, 192)
"""Voxels along (z, y, x)."""
SPACING = (2.0, 0.5, 0.5)
"""Micrometres between voxels."""
BLUR = (2.0, 0.6, 0.6)
"""Deviation of the microscope's point spread function, in micrometres."""
LEVELS = 3
OFFSET = 100
"""What the camera counts in the dark."""


def nuclei(random: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Return photons without noise, (z, y, x)."""
    image = np.full(SHAPE, 2.0)
    extents = np.array(SHAPE) * SPACING
    for _ in range(count):
        centre, radii = random.uniform(0, extents), random.uniform(3, 6, 3)
        low = np.maximum((centre - radii) / SPACING, 0).astype(int)
        high = np.minimum((centre + radii) / SPACING + 2, SHAPE).astype(int)
        box = tuple(slice(first, last) for first, last in zip(low, high, strict=True))
        micrometres = [np.arange(each.start, each.stop) * step for each, step in zip(box, SPACING, strict=True)]
        places = np.stack(np.meshgrid(*micrometres, indexing="ij"), -1)
        away = (((places - centre) / radii) ** 2).sum(-1)
        texture = 1 + 0.5 * np.sin(places @ random.normal(0, 1.2, 3) + random.uniform(0, 6))
        image[box] += (away < 1) * random.uniform(10, 30) * texture
    hat = np.fft.rfftn(image)
    for axis, (step, blur) in enumerate(zip(SPACING, BLUR, strict=True)):
        frequency = np.fft.rfftfreq(SHAPE[axis], step) if axis == 2 else np.fft.fftfreq(SHAPE[axis], step)
        hat *= np.exp(-2 * (np.pi * frequency * blur) ** 2).reshape([-1 if axis == other else 1 for other in range(3)])
    return np.asarray(np.fft.irfftn(hat, s=SHAPE, axes=(0, 1, 2)).clip(0))


def write(path: Path, image: NDArray[np.uint16]) -> None:
    """Write an OME-Zarr image of version 0.4: each level has half the resolution across of the one before."""
    group = zarr.open_group(path, mode="w", zarr_format=2)
    levels: list[Any] = []
    for level in range(LEVELS):
        group.create_array(
            str(level), data=image, chunks=(32, 64, 64), chunk_key_encoding={"name": "v2", "separator": "/"}
        )
        scale = [SPACING[0], SPACING[1] * 2**level, SPACING[2] * 2**level]
        levels.append({"path": str(level), "coordinateTransformations": [{"type": "scale", "scale": scale}]})
        depth, height, width = image.shape
        image = image.reshape(depth, height // 2, 2, width // 2, 2).mean((2, 4)).round().astype(np.uint16)
    axes: list[Any] = [{"name": name, "type": "space", "unit": "micrometer"} for name in "zyx"]
    group.attrs["multiscales"] = [{"version": "0.4", "name": path.stem, "axes": axes, "datasets": levels}]


def main() -> None:
    """Write the image and the truth."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nuclei", type=int, default=600)
    arguments = parser.parse_args()
    random = np.random.default_rng(0)
    photons = nuclei(random, arguments.nuclei)
    counted = random.poisson(photons) + random.normal(OFFSET, 3, SHAPE)
    write(arguments.folder / "embryo.zarr", counted.round().clip(0).astype(np.uint16))
    write(arguments.folder / "truth.zarr", (photons + OFFSET).round().astype(np.uint16))
    print(f"An image of {' x '.join(map(str, SHAPE))} voxels is in {arguments.folder}/embryo.zarr")


if __name__ == "__main__":
    main()
