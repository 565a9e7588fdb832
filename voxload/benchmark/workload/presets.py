"""Presets: workloads that others publish figures for, as published or scaled down; pure.

Sources: MLPerf Storage v2 (github.com/mlcommons/storage; the pace of B200 is of its issue 692) for sizes of samples and
batches and seconds of computing; Y. Oyama et al., "The Case for Strong Scaling in Deep Learning: Training Large 3D CNNs
with Hybrid Parallelism", IEEE TPDS 2021, for universes of 512^3 voxels that several GPUs share.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from voxload.benchmark.generate.plan import Contents, DatasetPlan, Kind
from voxload.benchmark.generate.storage import Codec, Extents, Storage, StoreFormat
from voxload.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A published workload."""

    name: str
    title: str
    """What it is, for people."""
    shape: tuple[int, int, int, int]
    """Extents (C, D, H, W) of a sample."""
    dtype: str
    chunks: tuple[int, int, int, int]
    codec: str
    values: str
    """What generated voxels are like: ``counts`` or ``floats``."""
    batch_size: int
    spatial: tuple[int, int, int] = (1, 1, 1)
    """Blocks along (d, h, w)."""
    compute: str = ""
    """Seconds of a step; empty where no figure is published."""
    threshold: float | None = None
    """Least utilisation that the benchmark accepts."""
    clairvoyant: bool = True
    """Whether the loader may know the seed; MLPerf Storage forbids it."""


def _unet3d(chip: str, seconds: str) -> Preset:
    # 146,600,628 bytes on average: as many float32 voxels as 332^3 have, to 0.2 %.
    return Preset(
        name=f"unet3d-{chip}",
        title=f"MLPerf Storage: 3-D U-Net on KiTS19 with the pace of {chip.upper()}",
        shape=(1, 332, 332, 332),
        dtype="float32",
        chunks=(1, 83, 83, 83),
        codec="none",
        values="floats",
        batch_size=7,
        compute=seconds,
        threshold=0.9,
        clairvoyant=False,
    )


def _cosmoflow(chip: str, seconds: str) -> Preset:
    # 2,828,486 bytes on average: what gzip makes of 128^3 voxels with 4 channels of int16.
    return Preset(
        name=f"cosmoflow-{chip}",
        title=f"MLPerf Storage: CosmoFlow on 128^3 voxels with the pace of {chip.upper()}",
        shape=(4, 128, 128, 128),
        dtype="int16",
        chunks=(4, 64, 64, 64),
        codec="gzip",
        values="counts",
        batch_size=1,
        compute=seconds,
        threshold=0.7,
        clairvoyant=False,
    )


_ALL = (
    _unet3d("a100", "0.636"),
    _unet3d("h100", "0.323"),
    _unet3d("b200", "0.162"),
    _cosmoflow("a100", "0.00551"),
    _cosmoflow("h100", "0.00350"),
    Preset(
        name="cosmoflow-512",
        title="CosmoFlow on 512^3 voxels, each sample shared by the ranks of a group",
        shape=(4, 512, 512, 512),
        dtype="int16",
        chunks=(4, 64, 64, 64),
        codec="gzip",
        values="counts",
        batch_size=1,
        spatial=(2, 2, 2),
    ),
)
PRESETS = {preset.name: preset for preset in _ALL}
"""All presets, by name."""


def named(name: str) -> Preset:
    """Return a preset; raises UsageError that lists all where there is none of that name."""
    if name not in PRESETS:
        raise UsageError("--preset", found=repr(name), expected=f"one of {', '.join(PRESETS)}")
    return PRESETS[name]


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
