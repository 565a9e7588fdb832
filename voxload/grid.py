"""ProcessGrid: which rank holds which block of which sample.

Ranks are laid out as (sample group) x (d, h, w) with w fastest, so that the ranks of one sample group have
consecutive numbers and, under every usual launcher, sit on as few nodes as possible.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from voxload.display.description import Described, Description
from voxload.display.grid_picture import counted, grid_picture
from voxload.errors import UsageError
from voxload.geometry import SPATIAL_AXES, Box, split

_LAUNCHERS: tuple[tuple[str, str, str], ...] = (
    ("torchrun", "RANK", "WORLD_SIZE"),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MPICH", "PMI_RANK", "PMI_SIZE"),
    # SLURM_NTASKS is set in a batch script too, where one plain process runs; only srun sets the step's count.
    ("Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)
"""Launchers in order of precedence: torchrun inside a Slurm step is torchrun."""


_LOCAL_RANKS = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
"""Where torchrun, Open MPI and MPICH say how many ranks share the node."""


@dataclass(frozen=True, slots=True)
class ProcessGrid(Described):
    """One rank's view of the grid of ranks; pure, it never communicates.

    Parameters
    ----------
    spatial
        Number of blocks along (d, h, w).
    world_size, rank
        Number of ranks in the job and this rank's number.

    Raises
    ------
    UsageError
        When the world is not a whole number of sample groups, or the rank is not in the world.

    Examples
    --------
    >>> grid = ProcessGrid(spatial=(2, 2, 2), world_size=16, rank=5)
    >>> grid.groups, grid.group, grid.coords
    (2, 0, (1, 0, 1))
    >>> str(grid.block((512, 512, 512)))
    '[256:512, 0:256, 256:512]'
    """

    spatial: tuple[int, int, int] = (1, 1, 1)
    """Blocks along (d, h, w)."""
    world_size: int = 1
    """Ranks in the job."""
    rank: int = 0
    """This rank."""

    def __post_init__(self) -> None:
        spatial = spatial_counts(self.spatial)
        object.__setattr__(self, "spatial", spatial)
        blocks = prod(spatial)
        if self.world_size < 1 or self.world_size % blocks:
            fitting = max(blocks, self.world_size // blocks * blocks)
            raise UsageError(
                f"world size {self.world_size} with spatial {spatial}",
                found=f"{self.world_size} ranks for blocks of {blocks} ranks a sample",
                expected=f"a multiple of {blocks}",
                remedy=f"start {fitting} or {fitting + blocks} ranks, or change the spatial grid",
            )
        if not 0 <= self.rank < self.world_size:
            raise UsageError("rank", found=str(self.rank), expected=f"0 to {self.world_size - 1}")

    @classmethod
    def from_env(cls, spatial: Sequence[int] = (1, 1, 1), *, environ: Mapping[str, str] | None = None) -> ProcessGrid:
        """Return the grid of the running job, from what its launcher put into the environment.

        Understands torchrun, Open MPI, MPICH (and the MPIs that share its process manager) and Slurm's srun,
        in this order. Without any of them the job is one process, which holds whole samples; where blocks were asked
        for, a RuntimeWarning says so, since a launcher that is not known looks alike.

        Parameters
        ----------
        spatial
            Number of blocks along (d, h, w).
        environ
            The environment; the process's own by default.

        Raises
        ------
        UsageError
            When the launcher's variables are incomplete or no numbers, or the world does not fit `spatial`.
        """
        known = os.environ if environ is None else environ
        rank, world_size = launched_as(known)
        wanted = spatial_counts(spatial)
        if prod(wanted) > 1 and not is_launched(known):
            warnings.warn(
                f"no launcher's variables were found: this process holds whole samples, not one of {prod(wanted)} "
                "blocks; start it by torchrun, mpiexec or srun",
                RuntimeWarning,
                stacklevel=2,
            )
            wanted = (1, 1, 1)
        return cls(spatial=wanted, world_size=world_size, rank=rank)

    @property
    def group_size(self) -> int:
        """Ranks that share one sample."""
        return prod(self.spatial)

    @property
    def groups(self) -> int:
        """Number of sample groups."""
        return self.world_size // self.group_size

    @property
    def group(self) -> int:
        """This rank's sample group."""
        return self.rank // self.group_size

    @property
    def coords(self) -> tuple[int, int, int]:
        """This rank's (d, h, w) place in its sample group."""
        return self.coords_of(self.rank)

    @property
    def group_ranks(self) -> tuple[int, ...]:
        """The ranks of this rank's sample group, in order."""
        first = self.group * self.group_size
        return tuple(range(first, first + self.group_size))

    @property
    def line_ranks(self) -> tuple[int, ...]:
        """The ranks with equal coordinates in every group: the only ones that ever need the same blocks."""
        return tuple(range(self.rank % self.group_size, self.world_size, self.group_size))

    def coords_of(self, rank: int) -> tuple[int, int, int]:
        """Return the (d, h, w) place of `rank` in its group."""
        _, height, width = self.spatial
        place = rank % self.group_size
        return place // (height * width), place // width % height, place % width

    def rank_of(self, group: int, coords: Sequence[int]) -> int:
        """Return the rank at `coords` of `group`."""
        place = 0
        for index, count in zip(coords, self.spatial, strict=True):
            if not 0 <= index < count:
                raise UsageError("grid coordinates", found=str(tuple(coords)), expected=f"inside {self.spatial}")
            place = place * count + index
        if not 0 <= group < self.groups:
            raise UsageError("sample group", found=str(group), expected=f"0 to {self.groups - 1}")
        return group * self.group_size + place

    def axis_ranks(self, axis: int) -> tuple[int, ...]:
        """Return the ranks of this group that differ from this rank on spatial `axis` only, in order."""
        coords = list(self.coords)
        ranks = []
        for index in range(self.spatial[axis]):
            coords[axis] = index
            ranks.append(self.rank_of(self.group, coords))
        return tuple(ranks)

    def bounds(self, shape: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Return, per axis, the bounds that cut a sample of spatial `shape` into this grid's blocks.

        Raises UsageError when `shape` is not (d, h, w) or an axis has fewer voxels than ranks.
        """
        if len(shape) != len(SPATIAL_AXES):
            raise UsageError("sample shape", found=str(tuple(shape)), expected="three extents, for (d, h, w)")
        return tuple(split(extent, parts) for extent, parts in zip(shape, self.spatial, strict=True))

    def block(self, shape: Sequence[int]) -> Box:
        """Return this rank's block of a sample of spatial `shape` (d, h, w), in voxels."""
        places = list(zip(self.bounds(shape), self.coords, strict=True))
        return Box(tuple(cut[i] for cut, i in places), tuple(cut[i + 1] for cut, i in places))

    def at(self, rank: int) -> ProcessGrid:
        """Return the same grid seen from another rank."""
        return ProcessGrid(spatial=self.spatial, world_size=self.world_size, rank=rank)

    def facts(self) -> dict[str, str]:
        """Return who this rank is, for people."""
        return {
            "ranks": f"{self.world_size:,}",
            "sample groups": f"{self.groups:,} of {self.group_size:,} ranks each",
            "blocks of a sample (d, h, w)": " x ".join(map(str, self.spatial)),
            "this rank": f"{self.rank}: group {self.group}, block {self.coords}",
        }

    def _described(self) -> Description:
        name = type(self).__name__
        return Description(name, (), self.facts(), picture=grid_picture(counted(self.spatial, self.coords)))


def spatial_counts(spatial: Sequence[int]) -> tuple[int, int, int]:
    """Return the number of blocks along (d, h, w); raises UsageError when they are not three counts of 1 or more."""
    given: Any = spatial  # what a caller hands over may be anything
    counts: tuple[Any, ...] = tuple(given) if isinstance(given, Iterable) else ()
    if len(counts) != len(SPATIAL_AXES) or any(not isinstance(n, int) or n < 1 for n in counts):
        raise UsageError("spatial grid", found=repr(spatial), expected="three counts of 1 or more, for (d, h, w)")
    return counts[0], counts[1], counts[2]


def is_launched(environ: Mapping[str, str]) -> bool:
    """Tell whether a launcher gave its rank and world size."""
    return any(rank in environ and size in environ for _, rank, size in _LAUNCHERS)


def ranks_here(environ: Mapping[str, str]) -> int | None:
    """Return how many ranks share this node, as a launcher says; None where none does."""
    known = [int(environ[name]) for name in _LOCAL_RANKS if environ.get(name, "").isdecimal()]
    return max(known, default=0) or None


def launched_as(environ: Mapping[str, str]) -> tuple[int, int]:
    """Return (rank, world size) from a launcher's variables; (0, 1) where no launcher is seen.

    Raises UsageError where the variables are no whole numbers, or where the only launcher seen gave one of its
    two: a rank that believes itself alone would not be noticed.
    """
    halves = []
    for launcher, rank_name, size_name in _LAUNCHERS:
        there = [name for name in (rank_name, size_name) if name in environ]
        if len(there) < 2:
            # Slurm sets the rank's variable in a batch script too, where no step runs.
            halves += [(launcher, *there)] if there and there != ["SLURM_PROCID"] else []
            continue
        try:
            return int(environ[rank_name]), int(environ[size_name])
        except ValueError:
            found = f"{rank_name}={environ[rank_name]!r}, {size_name}={environ[size_name]!r}"
            raise UsageError(f"environment of {launcher}", found=found, expected="whole numbers") from None
    if halves:
        launcher, name = halves[0]
        raise UsageError(
            f"environment of {launcher}", found=f"{name} alone", expected="rank and world size", remedy=f"unset {name}"
        )
    return 0, 1
