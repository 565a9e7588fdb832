"""The demo's real input: universes in the raw cosmoUniverse layout, one HDF5 file each.

============== ======================= ===========================================================
dataset        shape, dtype            meaning
============== ======================= ===========================================================
``full``       ``(N, N, N, 4)`` int16  matter counts per cell, redshift last, C order
``unitPar``    ``(4,)`` float32        the parameters scaled to [-1, 1]
``physPar``    ``(4,)`` float64        the same in physical units
``namePar``    ``(4,)`` string         their names
``redshifts``  ``(4,)`` float64        redshift of each channel
============== ======================= ===========================================================

A count is a Poisson draw whose mean is ``mean_count * (1 + delta)`` of its cell. That is what binning the
particles of powerbox's ``create_discrete_sample`` would give, without making the particles.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import starmap
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from voxload.demo.density import DensityGrid
from voxload.demo.parameters import NAMES, PARAMETERS, to_physical
from voxload.errors import UsageError
from voxload.files.atomic import replacing
from voxload.launch.worker_pool import completed, worker_pool

REDSHIFTS = (0.0, 0.5, 1.5, 3.0)
"""The four times at which a universe is seen, one channel each; those of cosmoUniverse."""

_MARK = "voxload_demo"
"""Root attribute that says how a file was made; what carries it may be replaced, anything else may not."""

_RECIPE = 1
"""Raised when the same specification starts to give other numbers, so that old files are made anew."""

_ALONE = 16
"""Up to this many universes are drawn in the calling process: starting others would take longer."""

_LARGEST = int(np.iinfo(np.int16).max)


@dataclass(frozen=True, slots=True)
class UniverseSpec:
    """What one universe is made from: equal specifications give equal files."""

    seed: int
    """Seed of the collection, 0 or more."""
    index: int
    """Number of the universe in the collection, 0 or more; universes of one seed are independent of each other."""
    size: int
    """Cells along each axis, even."""
    cell: float = 16.0
    """Width of a cell in Mpc/h. 32 cells of 16 Mpc/h are the 512 Mpc/h of a cosmoUniverse."""
    mean_count: float = 64.0
    """Mean count of a cell."""

    def __post_init__(self) -> None:
        if self.seed < 0 or self.index < 0:
            raise UsageError("seed and index", found=f"{self.seed} and {self.index}", expected="0 or more")
        if not 0 < self.mean_count <= _LARGEST:
            raise UsageError("mean_count", found=f"{self.mean_count:g}", expected=f"above 0, at most {_LARGEST}")

    @property
    def grid(self) -> DensityGrid:
        """The cube of cells; raises UsageError on an impossible size or cell."""
        return DensityGrid(self.size, self.cell)


@dataclass(frozen=True, slots=True)
class Universe:
    """One universe in memory."""

    counts: NDArray[np.int16] = field(repr=False)
    """Shape ``(size, size, size, 4)``, redshift last."""
    unit: NDArray[np.float64]
    """The parameters scaled to [-1, 1], shape ``(4,)``."""

    @classmethod
    def draw(cls, spec: UniverseSpec) -> Universe:
        """Draw the universe that `spec` describes; safe to call from several threads.

        Raises
        ------
        UsageError
            When a count does not fit int16.
        """
        _, phases, noise = _streams(spec)
        unit = unit_parameters(spec)
        phase_seed = int(phases.generate_state(1, np.uint64)[0])
        noisy = np.random.default_rng(noise)
        grid = spec.grid
        spectrum = grid.spectrum(to_physical(unit))
        counts = np.empty((spec.size,) * 3 + (len(REDSHIFTS),), np.int16)
        for channel, redshift in enumerate(REDSHIFTS):
            delta = grid.overdensity(spectrum, redshift, seed=phase_seed)
            drawn = noisy.poisson(spec.mean_count * (1 + delta))
            if drawn.max() > _LARGEST:
                raise UsageError(
                    f"mean_count {spec.mean_count:g}",
                    found=f"a cell with {drawn.max()} counts",
                    expected=f"at most {_LARGEST}, the largest int16",
                    remedy="ask for a smaller mean_count",
                )
            counts[..., channel] = drawn
        return cls(counts, unit)


def unit_parameters(spec: UniverseSpec) -> NDArray[np.float64]:
    """Return the parameters of a universe, scaled to [-1, 1], shape ``(4,)``, without drawing it."""
    return np.random.default_rng(_streams(spec)[0]).uniform(-1, 1, len(PARAMETERS))


def _streams(spec: UniverseSpec) -> list[np.random.SeedSequence]:
    """Return the seeds of a universe's parameters, phases and noise."""
    return np.random.SeedSequence(spec.seed, spawn_key=(spec.index,)).spawn(3)


def make_universes(
    folder: str | os.PathLike[str],
    *,
    count: int,
    size: int,
    seed: int,
    workers: int | None = None,
    progress: Callable[[int], object] | None = None,
) -> list[Path]:
    """Write `count` universes as ``universe-00000.hdf5`` and so on, and return their paths in that order.

    Files appear whole or not at all; one that an earlier call made from the same specification is kept.

    Parameters
    ----------
    folder
        Where the files go; made when missing.
    count
        How many universes.
    size
        Cells along each axis, even.
    seed
        Seed of the collection; universe i depends on `seed` and i only.
    workers
        Processes that draw and write at the same time; by default one per core that this process may use.
        Above 1 they are spawned, so that a script needs the usual ``if __name__ == "__main__":``.
    progress
        Called in this thread with 1 after each universe, such as ``tqdm.update``.

    Raises
    ------
    UsageError
        On an impossible size, or when a file that something else wrote has one of the names; in both cases
        before anything is written.
    """
    folder = Path(folder)
    if workers is None:
        workers = len(os.sched_getaffinity(0))
    if count < 1 or workers < 1:
        raise UsageError("count and workers", found=f"{count} and {workers}", expected="1 or more")
    plan = [(folder / f"universe-{index:05d}.hdf5", UniverseSpec(seed, index, size)) for index in range(count)]
    missing = [(path, spec) for path, spec in plan if _recorded(path) != _record(spec)]
    if missing:
        missing[0][1].grid.check()
        folder.mkdir(parents=True, exist_ok=True)
    if progress is not None and len(missing) < count:
        progress(count - len(missing))
    for _ in _each_done(missing, workers):
        if progress is not None:
            progress(1)
    return [path for path, _ in plan]


def _each_done(missing: list[tuple[Path, UniverseSpec]], workers: int) -> Iterator[None]:
    """Write the missing universes and yield after each; on an error or interrupt, start no further one."""
    if workers == 1 or len(missing) <= _ALONE:
        yield from starmap(write_universe, missing)
        return
    with worker_pool(workers) as pool:
        for _ in completed(pool, _write, missing, ahead=2 * workers):
            yield


def _write(planned: tuple[Path, UniverseSpec]) -> None:
    write_universe(*planned)


def write_universe(path: Path, spec: UniverseSpec) -> None:
    """Draw the universe of `spec` and write it to `path` in the layout above, replacing what is there."""
    universe = Universe.draw(spec)
    with replacing(path) as temporary, h5py.File(temporary, "w") as file:
        file.attrs[_MARK] = _record(spec)
        file["full"] = universe.counts
        file["unitPar"] = universe.unit.astype(np.float32)
        file["physPar"] = to_physical(universe.unit)
        file.create_dataset("namePar", data=NAMES, dtype=h5py.string_dtype())
        file["redshifts"] = np.array(REDSHIFTS)


def _record(spec: UniverseSpec) -> str:
    """Return how a universe was made, as its file says it."""
    return json.dumps({"recipe": _RECIPE, **asdict(spec)}, sort_keys=True)


def _recorded(path: Path) -> str | None:
    """Return how the file at `path` was made, None when there is none; raises UsageError on a foreign file."""
    if not path.exists():
        return None
    try:
        with h5py.File(path, "r") as file:
            return str(file.attrs[_MARK])
    except (OSError, KeyError) as error:
        raise UsageError(
            str(path),
            found="something that the demo did not write",
            expected="one of its universes, or nothing",
            remedy="choose another folder or remove it",
        ) from error
