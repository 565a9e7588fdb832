"""DeviceMesh and DTensor: torch's words for a grid and its blocks, and back.

The ranks of a grid are numbered group by group, with w fastest; a mesh says the same where its last dimensions are the
spatial ones, in the order d, h, w. Nothing here sends a voxel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch import Tensor

from voxload.errors import UsageError
from voxload.geometry import SPATIAL_AXES
from voxload.grid import ProcessGrid

if TYPE_CHECKING:  # importing them takes longer than all of this package
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.placement_types import Placement

DIMS = ("d", "h", "w")
"""Names of a mesh's spatial dimensions, unless the caller names others."""
GROUP = "group"
"""Name of the dimension of sample groups, in a mesh that is made here."""
_FIRST_AXIS = 2
"""Dimension of d in (B, C, d, h, w)."""


def grid_of(mesh: DeviceMesh, dims: Sequence[str] = DIMS) -> ProcessGrid:
    """Return the grid that a mesh of all ranks is, seen from this rank.

    Parameters
    ----------
    mesh
        Its dimensions have names. Those that `dims` does not name number the sample groups.
    dims
        Names of the dimensions that cut d, h and w; one that the mesh does not have cuts nothing.

    Raises
    ------
    UsageError
        When none of the dimensions is named so, when the mesh is a part of the world, or when its ranks have another
        order than a grid's.
    """
    names = tuple(getattr(mesh, "mesh_dim_names", None) or ())
    if len(dims) != len(SPATIAL_AXES) or not set(dims) & set(names):
        raise UsageError("mesh", found=f"dimensions {names}", expected=f"some of {tuple(dims)}, for d, h and w")
    sizes = dict(zip(names, mesh.mesh.shape, strict=True))
    spatial = tuple(sizes.get(name, 1) for name in dims)
    order = [name for name in names if name not in dims] + [name for name in dims if name in names]
    ranks = mesh.mesh.permute([names.index(name) for name in order]).flatten().tolist()
    world = dist.get_world_size()
    if ranks != list(range(world)):
        raise UsageError(
            f"mesh {names} of ranks {mesh.mesh.tolist()}",
            found=f"ranks {ranks} group by group, with {dims[-1]} fastest",
            expected=f"0 to {world - 1} in order",
            remedy="put the dimensions of sample groups first, then d, h, w, and make the mesh of all ranks",
        )
    return ProcessGrid((spatial[0], spatial[1], spatial[2]), world, mesh.get_rank())


def mesh_of(grid: ProcessGrid, device_type: str) -> DeviceMesh:
    """Return the mesh ``("group", "d", "h", "w")`` of a grid; all ranks of the world must call it together.

    Parameters
    ----------
    grid
        This rank's view of the grid.
    device_type
        ``"cpu"`` or ``"cuda"``.
    """
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415 - see above

    return init_device_mesh(device_type, (grid.groups, *grid.spatial), mesh_dim_names=(GROUP, *DIMS))


def to_dtensor(
    block: Tensor, mesh: DeviceMesh, shape: Sequence[int], *, dims: Sequence[str] = DIMS, samples: bool = True
) -> DTensor:
    """Return the whole volumes of all ranks as a DTensor of which this rank has `block`; no voxel is copied.

    Parameters
    ----------
    block
        This rank's block (B, C, d, h, w) of volumes of spatial `shape`; B and C are the same on all ranks.
    mesh, dims
        See `grid_of`.
    shape
        Extents (D, H, W) of the whole volume.
    samples
        Whether sample groups have samples of their own, which follow each other along B; else they have the same ones.

    Raises
    ------
    UsageError
        When the block is not this rank's, or torch would cut these extents elsewhere: it gives the first ranks as much
        as fits, where a grid's blocks differ by one voxel at most.
    """
    from torch.distributed.tensor import DTensor  # noqa: PLC0415 - see above

    grid = grid_of(mesh, dims)
    _require_alike(grid, shape)
    _require_block(block, grid, shape)
    groups = grid.groups if samples else 1
    size = (block.shape[0] * groups, block.shape[1], *shape)
    stride = tuple(prod(size[place + 1 :]) for place in range(len(size)))
    placements = _placements(mesh, dims, samples=samples)
    return DTensor.from_local(block, mesh, placements, run_check=False, shape=size, stride=stride)  # type: ignore[arg-type] # torch.Size


def from_dtensor(volume: DTensor, *, dims: Sequence[str] = DIMS) -> Tensor:
    """Return this rank's block (B, C, d, h, w) of the volumes that a DTensor is; no voxel is copied.

    Raises UsageError when it is cut otherwise than by the spatial dimensions of its mesh, each along its own axis.
    """
    mesh, given = volume.device_mesh, tuple(volume.placements)
    grid = grid_of(mesh, dims)
    fitting = [_placements(mesh, dims, samples=samples) for samples in (True, False)]
    if volume.ndim != _FIRST_AXIS + len(SPATIAL_AXES) or given not in fitting:
        raise UsageError(
            f"DTensor of shape {tuple(volume.shape)}",
            found=f"placements {given}",
            expected=" or ".join(map(str, fitting)),
            remedy="call redistribute before",
        )
    shape = tuple(volume.shape[_FIRST_AXIS:])
    _require_alike(grid, shape)
    block = volume.to_local()
    _require_block(block, grid, shape)
    return block


def _placements(mesh: DeviceMesh, dims: Sequence[str], *, samples: bool) -> tuple[Placement, ...]:
    """Return where the dimensions of a mesh cut volumes (B, C, d, h, w)."""
    from torch.distributed.tensor import Replicate, Shard  # noqa: PLC0415 - see above

    axes: Mapping[str, Any] = {name: Shard(_FIRST_AXIS + axis) for axis, name in enumerate(dims)}
    others = Shard(0) if samples else Replicate()
    return tuple(axes.get(name, others) for name in mesh.mesh_dim_names or ())


def _require_alike(grid: ProcessGrid, shape: Sequence[int]) -> None:
    """Raise UsageError where torch's chunks of an axis are other blocks than the grid's."""
    for name, extent, bounds in zip(SPATIAL_AXES, shape, grid.bounds(shape), strict=True):
        parts = len(bounds) - 1
        width = -(-extent // parts)
        chunks = tuple(min(place * width, extent) for place in range(parts + 1))
        if chunks != bounds:
            raise UsageError(
                f"DTensor over {extent} voxels along {name.lower()}",
                found=f"blocks that begin at {bounds[:-1]} on a grid, and at {chunks[:-1]} in a DTensor",
                expected="the same ones",
                remedy=f"make the extent a multiple of {parts}",
            )


def _require_block(block: Tensor, grid: ProcessGrid, shape: Sequence[int]) -> None:
    wanted = grid.block(shape).shape
    if tuple(block.shape[_FIRST_AXIS:]) != wanted:
        raise UsageError(
            f"block of rank {grid.rank}", found=f"shape {tuple(block.shape)}", expected=f"(B, C) and {wanted}"
        )
