"""Scaled presets: a published workload made as small as a machine wants it, and what was made smaller; pure."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from voxload.benchmark.codec import Codec
from voxload.benchmark.contents import Contents, Kind
from voxload.benchmark.dataset_plan import DatasetPlan
from voxload.benchmark.presets import Preset
from voxload.benchmark.storage import Extents, Storage, StoreFormat
from voxload.errors import UsageError

_LEAST = 16
"""Voxels along each axis below which a sample measures file systems' metadata and nothing else."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """A preset with samples whose extents (D, H, W) are divided.

    Raises UsageError for a divisor that leaves next to nothing.
    """

    preset: Preset
    shrink: int = 1
    """Divisor of the extents."""

    def __post_init__(self) -> None:
        if self.shrink < 1 or min(self.preset.shape[1:]) // self.shrink < _LEAST:
            raise UsageError(
                "--shrink",
                found=f"{self.shrink} for samples of {self.preset.shape}",
                expected=f"1 or more, and {_LEAST} voxels left along each axis",
            )

    @property
    def shape(self) -> Extents:
        """Extents (C, D, H, W) of a sample."""
        channels, *spatial = self.preset.shape
        depth, height, width = (extent // self.shrink for extent in spatial)
        return channels, depth, height, width

    @property
    def ratio(self) -> float:
        """Voxels of a sample over those that the preset has."""
        return prod(self.shape) / prod(self.preset.shape)

    def dataset(self, *, samples: int) -> DatasetPlan:
        """Return as many samples, stored in HDF5 as the preset has them."""
        channels, *widths = self.preset.chunks
        shape = self.shape
        depth, height, width = (
            min(extent, max(_LEAST, width // self.shrink)) for extent, width in zip(shape[1:], widths, strict=True)
        )
        storage = Storage(StoreFormat.HDF5, chunks=(channels, depth, height, width), codec=Codec(self.preset.codec))
        return DatasetPlan(shape, self.preset.dtype, storage, Contents(Kind(self.preset.values)), samples)

    def seconds(self) -> float | None:
        """Return the seconds of a step, in proportion to the voxels; None where the preset has none."""
        return float(self.preset.compute) * self.ratio if self.preset.compute else None

    def notes(self) -> tuple[str, ...]:
        """Return what differs from what was published, a sentence each."""
        found = []
        if self.shrink > 1:
            voxels = " x ".join(map(str, self.shape[1:]))
            found.append(
                f"Samples of {voxels} voxels in place of {' x '.join(map(str, self.preset.shape[1:]))}"
                + (
                    f", and a step of {self.seconds():.3g} s in place of {self.preset.compute} s."
                    if self.preset.compute
                    else "."
                )
            )
        if not self.preset.clairvoyant:
            found.append("Samples are stored in HDF5; MLPerf Storage has npz files or TFRecords.")
        return tuple(found)
