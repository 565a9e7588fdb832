"""Calibration: what was measured on a machine, as its file keeps it."""

from __future__ import annotations

from dataclasses import dataclass

from voxload.plan.costs.kernels import KernelPoints


@dataclass(frozen=True, slots=True)
class LinkFit:
    """Messages between ranks of one node: ``latency + sent * seconds_per_byte + moved * copying``."""

    ranks: int
    """That were there, all of which sent at once."""
    latency: float
    seconds_per_byte: float
    copying: float
    """Seconds for each byte of a block that is read or written to join it with its halos."""
    error: float
    """Median of how far off a message is, as a share of it."""
    sums: tuple[tuple[int, float], ...]
    """Bytes and seconds of sums over all of them."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was measured on a machine."""

    ranks: int
    """That shared a node when operations were timed."""
    device: str
    """Type of the device of a rank."""
    name: str
    """Its name."""
    memory: int
    """Its bytes."""
    overheads: tuple[float, ...]
    """Seconds from one operation to the next, of each part of a step in order."""
    kernels: tuple[KernelPoints, ...]
    links: tuple[LinkFit, ...]
