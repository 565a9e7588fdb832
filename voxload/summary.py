"""VolumeSummary: a volume's statistics as the catalogue keeps them, one struct a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from voxload.statistics import Statistics, merged

_FIGURES = [
    ("count", pa.int64()),
    ("nan_count", pa.int64()),
    ("inf_count", pa.int64()),
    ("min", pa.float64()),
    ("max", pa.float64()),
    ("mean", pa.float64()),
    ("std", pa.float64()),
]
SUMMARY_TYPE: pa.DataType = pa.struct(
    [
        *_FIGURES,
        ("edges", pa.list_(pa.float64())),
        ("histogram", pa.list_(pa.int64())),
        ("channels", pa.list_(pa.struct(_FIGURES))),
    ]
)
"""Type of the catalogue's column ``statistics``."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Figures of the finite voxels of a channel or a volume; those of no voxels are None."""

    count: int
    """Finite voxels."""
    nan_count: int
    """Voxels that are not a number."""
    inf_count: int
    """Infinite voxels."""
    min: float | None
    """Smallest."""
    max: float | None
    """Largest."""
    mean: float | None
    """Mean."""
    std: float | None
    """Standard deviation, as numpy's with ddof=0."""

    @classmethod
    def of(cls, found: Statistics) -> Summary:
        """Return the figures of statistics."""
        counts = found.count, found.nan_count, found.inf_count
        if not found.count:
            return cls(*counts, None, None, None, None)
        return cls(*counts, found.minimum, found.maximum, found.mean, found.std)


@dataclass(frozen=True, slots=True)
class VolumeSummary:
    """Figures of a whole volume, its histogram, and the figures of each channel."""

    whole: Summary
    """All channels together."""
    edges: tuple[float, ...]
    """Edges of the histogram's bins, one more than bins; the same bits-made edges in all catalogues."""
    histogram: tuple[int, ...]
    """Finite voxels in each bin, as ``numpy.histogram`` counts them with these edges."""
    channels: tuple[Summary, ...]
    """Figures of each channel."""

    @classmethod
    def of(cls, channels: Sequence[Statistics]) -> VolumeSummary:
        """Return the figures of a volume from those of its channels."""
        whole = merged(channels)
        edges, histogram = whole.histogram()
        return cls(Summary.of(whole), tuple(edges), tuple(histogram), tuple(map(Summary.of, channels)))

    def to_row(self) -> dict[str, Any]:
        """Return what the catalogue's column holds."""
        channels = [asdict(channel) for channel in self.channels]
        return {**asdict(self.whole), "edges": self.edges, "histogram": self.histogram, "channels": channels}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> VolumeSummary:
        """Return what a row of the catalogue's column says."""
        figures = [name for name, _ in _FIGURES]
        return cls(
            Summary(**{name: row[name] for name in figures}),
            tuple(row["edges"] or ()),
            tuple(row["histogram"] or ()),
            tuple(Summary(**{name: channel[name] for name in figures}) for channel in row["channels"] or ()),
        )
