"""Goals: the ratios that were asked for, and what a run shows of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.harness.samples import LAYOUTS
from bench.reading.results import Result

DIRECT = ("h5py-direct",)
H5PY = ("h5py", "h5py-direct")
"""One process of h5py: the faster way of reading counts."""
ZARR = ("zarr-raw", "zarr-blosc-lz4", "zarr-sharded-raw", "zarr-sharded-blosc")


@dataclass(frozen=True, slots=True)
class Goal:
    """A ratio that was asked for."""

    layout: str
    """Storage format."""
    case: str
    """Name of the case."""
    threads: int
    """Threads that voxload uses."""
    peers: tuple[str, ...]
    """Whom to compare with: the fastest of them; empty for all but memcpy."""
    versus: str
    """What the table calls them."""
    wanted: float
    """The ratio."""

    def find(self, results: Sequence[Result], dtype: str, chunk: int | None) -> Result | None:
        """Return the table that shows it for a type and chunk extent, or None when that was not run."""
        for result in results:
            same = (result.layout, result.case, result.dtype) == (self.layout, self.case, dtype)
            if same and result.chunk in (chunk, None):
                return result
        return None

    def ratio(self, result: Result) -> float | None:
        """Return how many times faster voxload is, or None when it or the peer took no part."""
        if self.peers:
            return result.ratio(self.threads, *self.peers)
        own, peer = result.own(self.threads), result.fastest_peer(self.threads)
        return peer.median_s / own.median_s if own and peer else None


def _zarr_goals() -> list[Goal]:
    goals = [Goal(layout, "octant", 2, ("zarr",), "zarr-python", 3.0) for layout in ZARR]
    goals += [Goal(layout, "octant", 2, ("tensorstore",), "tensorstore", 1.0) for layout in ZARR]
    return [*goals, Goal("zarr-gzip", "octant", 2, ("tensorstore",), "tensorstore", 2.0)]


def all_goals(layouts: Sequence[str]) -> list[Goal]:
    """Return the goals of these layouts, in the order in which they were set."""
    goals = [
        Goal("hdf5-gzip", "octant", 1, H5PY, "h5py", 3.5),
        Goal("hdf5-gzip", "octant", 2, H5PY, "h5py", 6.0),
        Goal("hdf5-gzip", "octant", 2, ("h5py-processes",), "h5py, 2 processes", 2.5),
        Goal("hdf5-gzip", "halo", 2, H5PY, "h5py", 6.0),
        Goal("hdf5-contiguous", "octant", 2, DIRECT, "h5py read_direct", 2.0),
        Goal("hdf5-chunked", "octant", 2, DIRECT, "h5py read_direct", 2.0),
        Goal("hdf5-zstd", "octant", 2, H5PY, "h5py", 2.5),
        Goal("hdf5-blosc-lz4", "octant", 2, H5PY, "h5py", 1.6),
        *_zarr_goals(),
    ]
    goals += [Goal(layout, "crops", 2, (), "fastest peer", 1.0) for layout in layouts]
    goals += [
        Goal(layout, "octant", 2, ("memcpy",), "memcpy", 0.4) for layout in layouts if LAYOUTS[layout].codec.is_none
    ]
    return [goal for goal in goals if goal.layout in layouts]


def goals_to_json(goals: Sequence[Goal], results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return each goal with what every table that shows it measured."""
    rows = []
    for goal in goals:
        for result in results:
            if (result.layout, result.case) == (goal.layout, goal.case):
                place = {"dtype": result.dtype, "chunk": result.chunk, "measured": goal.ratio(result)}
                rows.append(asdict(goal) | place | {"bystander_cores": result.bystander_cores})
    return rows
