"""grid: ranks and blocks, from every launcher's environment and under real launchers."""

from __future__ import annotations

import doctest
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support import processes
from voxload import grid as grid_module
from voxload.errors import UsageError
from voxload.grid import ProcessGrid

BIN = Path(sys.executable).parent

spatials = st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))


@st.composite
def grids(draw: st.DrawFn) -> ProcessGrid:
    """Draw a rank's view of a grid."""
    spatial = draw(spatials)
    world = int(np.prod(spatial)) * draw(st.integers(1, 4))
    return ProcessGrid(spatial, world, draw(st.integers(0, world - 1)))


@given(grids(), st.tuples(st.integers(1, 12), st.integers(1, 12), st.integers(1, 12)))
def test_blocks_tile_the_sample(grid: ProcessGrid, shape: tuple[int, int, int]) -> None:
    """The blocks of a sample group hold every voxel once, and differ by one at most along each axis."""
    assume(all(parts <= extent for parts, extent in zip(grid.spatial, shape, strict=True)))
    owned = np.zeros(shape, dtype=int)
    blocks = [grid.at(rank).block(shape) for rank in grid.group_ranks]
    for block in blocks:
        owned[block.slices] += 1
    assert (owned == 1).all()
    sizes = np.array([block.shape for block in blocks])
    assert (sizes.max(axis=0) - sizes.min(axis=0) <= 1).all()
    assert sizes.min() >= 1


@given(grids())
def test_ranks_and_coordinates_go_round(grid: ProcessGrid) -> None:
    """A rank is its group and coordinates; lines cut across groups; axis_ranks differ on one axis."""
    assert grid.rank_of(grid.group, grid.coords) == grid.rank
    assert grid.groups * grid.group_size == grid.world_size
    assert len({(grid.at(rank).group, grid.coords_of(rank)) for rank in range(grid.world_size)}) == grid.world_size
    assert grid.rank in grid.line_ranks
    assert {grid.coords_of(rank) for rank in grid.line_ranks} == {grid.coords}
    assert [grid.at(rank).group for rank in grid.line_ranks] == list(range(grid.groups))
    for axis in range(3):
        ranks = grid.axis_ranks(axis)
        assert [grid.coords_of(rank)[axis] for rank in ranks] == list(range(grid.spatial[axis]))
        others = {tuple(np.delete(grid.coords_of(rank), axis)) for rank in ranks}
        assert others == {tuple(np.delete(grid.coords, axis))}
        assert set(ranks) <= set(grid.group_ranks)


def test_w_is_fastest() -> None:
    """Neighbours along w have consecutive ranks, and a group's ranks are consecutive."""
    grid = ProcessGrid((2, 3, 4), 48, 24 + 17)
    assert (grid.group, grid.coords) == (1, (1, 1, 1))
    assert grid.axis_ranks(2) == (40, 41, 42, 43)
    assert grid.group_ranks == tuple(range(24, 48))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"spatial": (2, 2, 2), "world_size": 12}, "12 ranks for blocks of 8 ranks a sample, expected a multiple of 8"),
        ({"spatial": (2, 2, 2), "world_size": 12}, "start 8 or 16 ranks, or change the spatial grid"),
        ({"spatial": (2, 2, 2), "world_size": 4}, "start 8 or 16 ranks"),
        ({"spatial": (2, 2), "world_size": 4}, r"found \(2, 2\), expected three counts"),
        ({"spatial": (2, 0, 2), "world_size": 4}, "counts of 1 or more"),
        ({"spatial": (2, 1.0, 2), "world_size": 4}, "counts of 1 or more"),
        ({"world_size": 0}, "world size 0"),
        ({"world_size": 2, "rank": 2}, "rank: found 2, expected 0 to 1"),
        ({"world_size": 2, "rank": -1}, "rank: found -1, expected 0 to 1"),
    ],
)
def test_bad_grids_say_why(arguments: dict[str, Any], words: str) -> None:
    """A grid that does not fit names the numbers and what to do."""
    with pytest.raises(UsageError, match=words):
        ProcessGrid(**arguments)


def test_bad_places_are_refused() -> None:
    """Coordinates and groups outside the grid, and samples smaller than it."""
    grid = ProcessGrid((2, 1, 1), 4, 0)
    with pytest.raises(UsageError, match=r"grid coordinates: found \(2, 0, 0\)"):
        grid.rank_of(0, (2, 0, 0))
    with pytest.raises(UsageError, match="sample group: found 2, expected 0 to 1"):
        grid.rank_of(2, (0, 0, 0))
    with pytest.raises(UsageError, match="1 voxels over 2 ranks: found more ranks than voxels"):
        grid.block((1, 4, 4))
    with pytest.raises(UsageError, match="three extents"):
        grid.block((4, 4))


TORCHRUN = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "3"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2"}
SLURM_STEP = {"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "6", "SLURM_NTASKS": "6"}
SLURM_BATCH = {"SLURM_PROCID": "0", "SLURM_NTASKS": "64", "SLURM_NPROCS": "64", "SLURM_NNODES": "8"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, (0, 1)),
        ({"PATH": "/bin"}, (0, 1)),
        (TORCHRUN, (3, 8)),
        (OPEN_MPI, (2, 4)),
        (MPICH, (1, 2)),
        (SLURM_STEP, (5, 6)),
        # A batch script runs once, whatever the allocation: its 64 tasks are not started.
        (SLURM_BATCH, (0, 1)),
        # torchrun, or mpiexec, started by a Slurm step or a batch script.
        (TORCHRUN | SLURM_STEP, (3, 8)),
        (TORCHRUN | SLURM_BATCH | OPEN_MPI, (3, 8)),
        (OPEN_MPI | SLURM_BATCH, (2, 4)),
        (MPICH | SLURM_STEP, (1, 2)),
        # One half of a pair is no launcher where another one is whole.
        ({"RANK": "7"} | OPEN_MPI, (2, 4)),
    ],
)
def test_environments(environ: dict[str, str], expected: tuple[int, int]) -> None:
    """Each launcher is understood, torchrun first, and a plain process is alone."""
    grid = ProcessGrid.from_env(environ=environ)
    assert (grid.rank, grid.world_size) == expected


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        (TORCHRUN | {"RANK": "three"}, "environment of torchrun: found RANK='three', WORLD_SIZE='8'"),
        (MPICH | {"PMI_SIZE": ""}, "environment of MPICH"),
        ({"RANK": "3"}, "environment of torchrun: found RANK alone, expected rank and world size; unset RANK"),
        ({"WORLD_SIZE": "3"}, "WORLD_SIZE alone"),
        ({"OMPI_COMM_WORLD_RANK": "1"}, "environment of Open MPI"),
        ({"SLURM_STEP_NUM_TASKS": "4"}, "environment of Slurm"),
        ({"RANK": "8", "WORLD_SIZE": "8"}, "rank: found 8"),
    ],
)
def test_broken_environments_are_refused(environ: dict[str, str], words: str) -> None:
    """Half an environment is no single process: each rank would train alone, unnoticed."""
    with pytest.raises(UsageError, match=words):
        ProcessGrid.from_env(environ=environ)


@pytest.mark.parametrize("spatial", [(2, 2), (2, 2, 2, 2), ()])
def test_from_env_wants_three_counts(spatial: tuple[int, ...]) -> None:
    """The spatial grid has three axes."""
    with pytest.raises(UsageError, match="three counts"):
        ProcessGrid.from_env(spatial, environ={})


def test_without_a_launcher_one_process_holds_whole_samples() -> None:
    """As a script that was started alone; a launcher that is not known would look the same, hence the warning."""
    with pytest.warns(RuntimeWarning, match="this process holds whole samples, not one of 2 blocks"):
        grid = ProcessGrid.from_env((2, 1, 1), environ={})
    assert grid == ProcessGrid()
    assert ProcessGrid.from_env(environ={}) == ProcessGrid()
    with pytest.raises(UsageError, match="world size 1"):
        ProcessGrid.from_env((2, 1, 1), environ={"RANK": "0", "WORLD_SIZE": "1"})


SCRIPT = """
import json, os
from voxload.grid import ProcessGrid
grid = ProcessGrid.from_env((2, 1, 1))
# One write: ranks share a pipe.
os.write(1, (json.dumps([grid.rank, grid.world_size, grid.group, grid.coords]) + "\\n").encode())
"""

LAUNCHERS = {
    "torchrun": ["torchrun", "--nproc-per-node", "4", "--master-addr", "127.0.0.1", "--master-port", "0"],
    "mpiexec": ["mpiexec", "-n", "4"],
}


@pytest.mark.parametrize("name", [pytest.param("torchrun", marks=pytest.mark.long), "mpiexec"])
def test_real_launchers(tmp_path: Path, name: str) -> None:
    """Four processes of a real launcher know their ranks, groups and coordinates."""
    program, *options = LAUNCHERS[name]
    script = tmp_path / "rank.py"
    script.write_text(SCRIPT)
    inherited = ("RANK", "WORLD_SIZE", "PMI", "OMPI", "SLURM", "LOCAL_", "GROUP_", "TORCHELASTIC")
    environ = {key: value for key, value in os.environ.items() if not key.startswith(inherited)}
    python = [sys.executable] if name == "mpiexec" else []
    command = [str(BIN / program), *options, *python, str(script)]
    run = processes.run(command, capture_output=True, text=True, check=False, env=environ | {"OMP_NUM_THREADS": "1"})
    assert run.returncode == 0, run.stderr
    found = sorted(json.loads(line) for line in run.stdout.splitlines())
    assert found == [[rank, 4, rank // 2, [rank % 2, 0, 0]] for rank in range(4)]


def test_examples_in_the_documentation_hold() -> None:
    """The doctests of the module run."""
    found = doctest.testmod(grid_module)
    assert found.attempted >= 3
    assert found.failed == 0
