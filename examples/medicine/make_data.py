"""Make abdominal CT scans with labelled kidneys and tumours, as NIfTI files in the layout of nnU-Net and the Decathlon.

python examples/medicine/make_data.py scans

Each is a phantom of ellipsoids in Hounsfield units: fat, muscle, spine, liver, kidneys with contrast agent in the fat
around them, and a tumour in one of them. Slices are 5 mm apart and pixels 3 mm. Scans differ in their numbers of
slices.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import nibabel
import numpy as np
from numpy.typing import NDArray

SPACING = (5.0, 3.0, 3.0)
"""Millimetres between voxels along (D, H, W): foot to head, front to back, right to left."""
PLANE = 96
"""Pixels along H and W."""
SLICES = (24, 28, 32)
KIDNEY, TUMOUR = 1, 2


class Phantom:
    """One patient: a volume in Hounsfield units and its labels, (D, H, W)."""

    def __init__(self, random: np.random.Generator, slices: int) -> None:
        self.random = random
        extents = [count * step for count, step in zip((slices, PLANE, PLANE), SPACING, strict=True)]
        shape = (slices, PLANE, PLANE)
        self.places = [
            np.arange(count).reshape([-1 if axis == other else 1 for other in range(3)]) * SPACING[axis]
            - extents[axis] / 2
            for axis, count in enumerate(shape)
        ]
        self.voxels = np.full(shape, -1000.0)
        self.labels = np.zeros(shape, np.uint8)

    def add(self, centre: tuple[float, ...], radii: tuple[float, ...], value: float, label: int = 0) -> None:
        """Put an ellipsoid into the volume, in millimetres from its middle; its edge is as soft as a scanner's."""
        squares = [
            ((place - middle) / radius) ** 2 for place, middle, radius in zip(self.places, centre, radii, strict=True)
        ]
        depth = (1 - np.sqrt(squares[0] + squares[1] + squares[2])) * min(radii)
        share = 1 / (1 + np.exp(-depth.clip(-20, 20) / 1.5))
        self.voxels += share * (value - self.voxels)
        self.labels[depth > 0] = label

    def scanned(self) -> NDArray[np.int16]:
        """Return the volume with the noise of a scanner."""
        return np.round(self.voxels + self.random.normal(0, 15, self.voxels.shape)).clip(-1024, 3071).astype(np.int16)


def patient(random: np.random.Generator, slices: int) -> Phantom:
    """Draw one: no two have their organs at the same places."""

    def shift(by: float) -> float:
        return float(random.uniform(-by, by))

    phantom = Phantom(random, slices)
    wide, deep = 125 + shift(8), 95 + shift(8)
    phantom.add((0, 0, 0), (1000, deep, wide), -100)
    phantom.add((0, 0, 0), (1000, deep - 14, wide - 14), 45)
    phantom.add((0, 55, 0), (1000, 20, 20), 450)
    phantom.add((20 + shift(10), -15, -60), (70, 50, 45), 70 + shift(5))
    phantom.add((20 + shift(10), -30, 65), (40, 30, 30), 60 + shift(10))
    ill = random.choice([-1, 1])
    for side in (-1, 1):
        centre = (shift(15), 32 + shift(5), side * (62 + shift(6)))
        radii = (42 + shift(5), 21 + shift(3), 24 + shift(3))
        phantom.add(centre, tuple(radius + 12 for radius in radii), -90)
        phantom.add(centre, radii, 190 + shift(20), KIDNEY)
        if side == ill:
            radius, at = 20 + shift(4), shift(15)
            phantom.add((centre[0] + at, centre[1] - 12, centre[2] + side * 12), (radius,) * 3, 120 + shift(10), TUMOUR)
    return phantom


def main() -> None:
    """Write scans and labels."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=12, help="patients")
    arguments = parser.parse_args()
    random = np.random.default_rng(0)
    affine = np.diag([*SPACING[::-1], 1.0])
    for number in range(arguments.count):
        phantom = patient(random, SLICES[number % len(SLICES)])
        for folder, voxels in (("imagesTr", phantom.scanned()), ("labelsTr", phantom.labels)):
            (arguments.folder / folder).mkdir(parents=True, exist_ok=True)
            image = nibabel.Nifti1Image(voxels.transpose(2, 1, 0), affine)  # type: ignore[no-untyped-call]
            image.header.set_xyzt_units("mm")  # type: ignore[no-untyped-call]
            nibabel.save(image, arguments.folder / folder / f"case_{number:02}.nii.gz")
    print(f"{arguments.count} scans and their labels are in {arguments.folder}/")


if __name__ == "__main__":
    main()
