"""Statistics: what the voxels of a volume are like, in parts that can be merged, as a catalogue keeps it.

The histogram's bins are fixed by the bits of a number and not by the data, so that those of any two volumes can be
added up: sixteen bins between a power of two and the next, of either sign. Small integers have bins of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

_BIN_SHIFT = 48
"""A bin is known by the highest 16 bits of a float64: sign, exponent and the first 4 bits of the mantissa."""
BINS = 1 << 64 - _BIN_SHIFT
_SIGN = 1 << 63
_ALL = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Statistics:
    """Figures of the finite voxels of one channel or volume; merging is exact but for rounding."""

    count: int = 0
    """Finite voxels."""
    nan_count: int = 0
    """Voxels that are not a number."""
    inf_count: int = 0
    """Infinite voxels, of either sign."""
    minimum: float = math.inf
    """Smallest finite voxel; infinite where there is none."""
    maximum: float = -math.inf
    """Largest finite voxel; minus infinite where there is none."""
    mean: float = 0.0
    """Mean of the finite voxels."""
    deviations: float = 0.0
    """Sum of the squared deviations from the mean."""
    bins: Mapping[int, int] = field(default_factory=dict)
    """Voxels by number of their bin, which only this module understands."""

    @property
    def std(self) -> float:
        """Standard deviation of the finite voxels, as numpy's with ddof=0; NaN where there are none."""
        return math.sqrt(self.deviations / self.count) if self.count else math.nan

    def histogram(self) -> tuple[list[float], list[int]]:
        """Return edges and counts, as ``numpy.histogram(finite_voxels, edges)`` gives them; a gap is one empty bin."""
        edges: list[float] = []
        counts: list[int] = []
        for number in sorted(self.bins):
            low, high = _edge(number), _edge(number + 1)
            if edges and edges[-1] != low:
                counts.append(0)
            if not edges or edges[-1] != low:
                edges.append(low)
            edges.append(high)
            counts.append(self.bins[number])
        return edges, counts

    def __add__(self, other: Statistics) -> Statistics:
        """Return the figures of both together. Source: Chan, Golub and LeVeque 1983, equation 2.1."""
        count = self.count + other.count
        apart = other.mean - self.mean
        share = other.count / count if count else 0.0
        # With equal means 0.0 * inf must not appear, nor a change in the last bit of a mean that is exact.
        mean = self.mean + apart * share if self.count else other.mean
        bins = dict(self.bins)
        for number, found in other.bins.items():
            bins[number] = bins.get(number, 0) + found
        return Statistics(
            count,
            self.nan_count + other.nan_count,
            self.inf_count + other.inf_count,
            min(self.minimum, other.minimum),
            max(self.maximum, other.maximum),
            mean,
            self.deviations + other.deviations + apart * apart * self.count * share,
            bins,
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values; floats keep every bit."""
        numbers = sorted(self.bins)
        return {
            "count": self.count,
            "nan": self.nan_count,
            "inf": self.inf_count,
            "range": [self.minimum, self.maximum] if self.count else [],
            "mean": self.mean,
            "deviations": self.deviations,
            "bins": numbers,
            "voxels": [self.bins[number] for number in numbers],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Statistics:
        """Return what `to_json` gave; raises KeyError, TypeError or ValueError on anything else."""
        low, high = values["range"] or (math.inf, -math.inf)
        bins = dict(zip(values["bins"], values["voxels"], strict=True))
        return cls(values["count"], values["nan"], values["inf"], low, high, values["mean"], values["deviations"], bins)


def merged(parts: Iterable[Statistics]) -> Statistics:
    """Return the figures of all parts together."""
    return sum(parts, Statistics())


def of_values(values: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]) -> Statistics:
    """Return the figures of finite values, each of which occurs so many times; `values` must be sorted."""
    total = int(counts.sum())
    if not total:
        return Statistics()
    mean = float((values * counts).sum() / total)
    deviations = float((np.square(values - mean) * counts).sum())
    numbers, first = np.unique(bin_numbers(values), return_index=True)
    bins = np.add.reduceat(counts, first)
    return Statistics(
        total,
        minimum=float(values[0]),
        maximum=float(values[-1]),
        mean=mean,
        deviations=deviations,
        bins=dict(zip(numbers.tolist(), bins.tolist(), strict=True)),
    )


def bin_numbers(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return the number of each finite value's bin; larger values never have smaller numbers."""
    bits = (values + 0.0).view(np.uint64)  # minus zero becomes zero
    flip = np.where(bits >> np.uint64(63), np.uint64(_ALL), np.uint64(_SIGN))
    return ((bits ^ flip) >> np.uint64(_BIN_SHIFT)).astype(np.int64)


def _edge(number: int) -> float:
    """Return the smallest value of a bin."""
    key = number << _BIN_SHIFT
    bits = key ^ _SIGN if key & _SIGN else key ^ _ALL
    return float(np.array(bits, np.uint64).view(np.float64))


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
        figures = [one.name for one in fields(Summary)]
        return cls(
            Summary(**{name: row[name] for name in figures}),
            tuple(row["edges"] or ()),
            tuple(row["histogram"] or ()),
            tuple(Summary(**{name: channel[name] for name in figures}) for channel in row["channels"] or ()),
        )
