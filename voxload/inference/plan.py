"""InferencePlan: all that a run of predictions is told, as plain values that travel to its ranks as JSON."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from voxload.errors import DataError, UsageError
from voxload.files.regular import parse_json
from voxload.launch.devices import HOST, check_device

ZARR, NIFTI = "zarr", "nifti"
"""How predicted volumes are stored."""
GAUSSIAN, MEAN = "gaussian", "mean"
"""How predictions for overlapping patches are put together: weighted by the distance from the middle, or alike."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """How samples are parted into patches that are predicted one by one."""

    patch: tuple[int, int, int]
    """Extents (d, h, w) of each."""
    overlap: float = 0.5
    """Share of its extents that a patch has in common with the next one."""
    stitch: str = GAUSSIAN
    """How what overlaps is put together."""

    def __post_init__(self) -> None:
        if min(self.patch) < 1 or not 0 <= self.overlap < 1 or self.stitch not in (GAUSSIAN, MEAN):
            raise UsageError(
                "patches",
                found=f"{self.patch}, overlap {self.overlap}, {self.stitch!r}",
                expected=f"extents of 1 or more, an overlap in [0, 1), and {GAUSSIAN!r} or {MEAN!r}",
            )


@dataclass(frozen=True, slots=True)
class InferencePlan:
    """Predictions of one network for the samples of one catalogue."""

    catalog: str
    """Path of the catalogue."""
    checkpoint: str
    """File that a training run wrote, or the folder that holds it."""
    output: str
    """Folder for the predictions."""
    spatial: tuple[int, int, int] = (1, 1, 1)
    """Blocks along (d, h, w); may differ from those of the training."""
    batch_size: int = 1
    """Samples of one sample group that are predicted together, at most."""
    dataset: str = ""
    """Dataset to predict from; empty for the one that was trained on, or the only one."""
    labels: str = ""
    """Dataset with a class for each voxel to compare with; empty for the one that was trained on, where it is there."""
    allow_outside: bool = False
    """Whether the catalogue's paths may lead out of its folder."""
    device: str = HOST
    """What each rank computes on, one of `voxload.launch.devices.DEVICES`."""
    patch: tuple[int, ...] = ()
    """Extents of the patches that are predicted; empty for those that were trained on, 0 for whole samples."""
    overlap: float = 0.5
    """See `Tiling`."""
    stitch: str = GAUSSIAN
    """See `Tiling`."""
    format: str = ZARR
    """How classes of voxels are stored: `ZARR`, with a catalogue, or `NIFTI`, an image a sample."""

    def tiling(self, trained: tuple[int, ...]) -> Tiling | None:
        """Return how samples are parted, given the patches of the training; None where they are predicted whole."""
        d, h, w = self.patch or trained or (0, 0, 0)
        return None if (d, h, w) == (0, 0, 0) else Tiling((d, h, w), self.overlap, self.stitch)

    def __post_init__(self) -> None:
        check_device(self.device)
        if self.batch_size < 1:
            raise UsageError("batch size", found=str(self.batch_size), expected="1 or more")
        if self.format not in (ZARR, NIFTI):
            raise UsageError("--format", found=repr(self.format), expected=f"{ZARR} or {NIFTI}")

    def to_json(self) -> str:
        """Return the plan as JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> InferencePlan:
        """Return the plan that `to_json` wrote; raises DataError on anything else."""
        try:
            values: dict[str, Any] = parse_json(text)
            lists = {name: tuple(values[name]) for name in ("spatial", "patch")}
            return cls(**{**values, **lists})
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(
                "inference plan", found=str(error), expected="JSON as InferencePlan.to_json writes"
            ) from error
