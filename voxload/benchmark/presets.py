"""Presets: workloads that others publish figures for, by name; pure.

Sources: MLPerf Storage v2 (github.com/mlcommons/storage; the pace of B200 is of its issue 692) for sizes of samples and
batches and seconds of computing; Y. Oyama et al., "The Case for Strong Scaling in Deep Learning: Training Large 3D CNNs
with Hybrid Parallelism", IEEE TPDS 2021, for universes of 512^3 voxels that several GPUs share.
"""

from __future__ import annotations

from dataclasses import dataclass

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
