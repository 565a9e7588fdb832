"""SampleResult: what a conversion stored of one sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from voxload.statistics import Statistics


@dataclass(frozen=True, slots=True)
class SampleResult:
    """What was stored of one sample."""

    stored_bytes: int
    """Bytes of its chunks in storage."""
    channels: tuple[dict[str, Any], ...]
    """Figures of each channel's voxels, in the plain form of `Statistics`."""

    @property
    def statistics(self) -> tuple[Statistics, ...]:
        """Figures of each channel's voxels."""
        return tuple(map(Statistics.from_json, self.channels))

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> SampleResult:
        """Return what is in plain values; raises KeyError, TypeError or ValueError on anything else."""
        found = cls(int(values["stored_bytes"]), tuple(values["channels"]))
        _ = found.statistics
        return found
