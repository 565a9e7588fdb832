"""Sharded weights: of layers that are cut by filters or channels, each rank keeps its part of the weight alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from voxload.engine.forward.planning import ForwardPlan
from voxload.engine.forward.rules.features import Weighted
from voxload.engine.forward.sharding import Dim, Sharding
from voxload.errors import UsageError
from voxload.grid import ProcessGrid

if TYPE_CHECKING:  # importing it takes longer than all of this package
    from torch.distributed.device_mesh import DeviceMesh

_WEIGHT = "weight"
_DIMS = ("replicas", "filters", "channels")
"""Names of the dimensions of a mesh of weights: ranks that have the same part, and those that have others."""


def keep_parts(network: nn.Module, plan: ForwardPlan, grid: ProcessGrid) -> None:
    """Put DTensors of parts into the places of weights that `plan` has cut; all ranks must call it together.

    Parts are those of the first rank's weights.

    Parameters
    ----------
    network
        The network that runs split; its layers are those of the model.
    plan
        How its calls are carried out.
    grid
        This rank's view of the grid.

    Raises
    ------
    UsageError
        When torch.distributed is not initialised, and for weights of which ranks would have parts of several sizes,
        that several layers have, or that a layer takes in two ways.
    """
    if not (dist.is_available() and dist.is_initialized()):
        raise UsageError(
            "shard_weights", found="no process group", remedy="call torch.distributed.init_process_group first"
        )
    cuts = dict(_cuts(network, plan))
    if not cuts:
        raise UsageError("shard_weights", found="a plan that cuts no weight evenly", expected="filters or channels")
    names = [name for name, _ in network.named_parameters(remove_duplicate=False)]
    meshes: dict[tuple[tuple[int, ...], ...], DeviceMesh] = {}
    for path, cut in cuts.items():
        module = network.get_submodule(path)
        weight = module.get_parameter(_WEIGHT)
        if sum(network.get_parameter(name) is weight for name in names) > 1:
            raise _refused(path, "a weight that other layers have, too", "one of its own")
        axes = _axes(cut.dims[0]), _axes(cut.dims[1])
        if axes not in meshes:
            meshes[axes] = _mesh(grid, axes, weight.device.type)
        module.register_parameter(_WEIGHT, _part(weight, cut, meshes[axes], grid))
    apart = [f"{path}.{_WEIGHT}" if path else _WEIGHT for path in cuts]
    ignore = DistributedDataParallel._set_params_and_buffers_to_ignore_for_model  # noqa: SLF001 - what torch's own library of sharded tables calls
    ignore(network, apart)  # type: ignore[no-untyped-call] # torch leaves it untyped


def sharded_parameters(network: nn.Module) -> set[nn.Parameter]:
    """Return the weights of which each rank has a part alone: FSDP2 is to be told to ignore them."""
    return {weight for weight in network.parameters() if tuple(_names(weight)) == _DIMS}


def _names(weight: Tensor) -> Sequence[str]:
    mesh = getattr(weight, "device_mesh", None)
    return () if mesh is None else mesh.mesh_dim_names or ()


def _cuts(network: nn.Module, plan: ForwardPlan) -> Iterator[tuple[str, Sharding]]:
    """Yield the paths of layers whose weights are cut, and the cuts."""
    found: dict[str, Sharding] = {}
    for call, step in plan.sequence:
        action = step.action
        if not isinstance(action, Weighted) or action.weight.is_whole:
            continue
        weight = getattr(network.get_submodule(call.path), _WEIGHT, None)
        if not isinstance(weight, nn.Parameter) or tuple(weight.shape) != action.weight.shape:
            continue  # it is computed, or none of the layer's own
        if not all(map(_is_run, action.weight.dims)):
            continue  # its parts follow those of the volume, which other shapes have otherwise
        if found.setdefault(call.path, action.weight) != action.weight:
            raise _refused(call.path, "calls that take its weight cut in two ways", "one way")
        for dim in action.weight.dims:
            for factor in dim:
                widths = {hi - lo for lo, hi in pairwise(factor.bounds)}
                if len(widths) > 1:
                    wanted = f"a multiple of {len(factor.bounds) - 1}"
                    raise _refused(call.path, f"{factor.extent} features to cut", wanted)
    yield from found.items()


def _is_run(dim: Dim) -> bool:
    """Tell whether what a rank has along a dimension are neighbours."""
    return all(factor.axis is not None and factor.extent == len(factor.bounds) - 1 for factor in dim[:-1])


def _axes(dim: Dim) -> tuple[int, ...]:
    return tuple(factor.axis for factor in dim if factor.axis is not None)


def _mesh(grid: ProcessGrid, axes: tuple[tuple[int, ...], ...], device: str) -> DeviceMesh:
    """Return the mesh of ranks that have the same part, by rows, and of the parts."""
    from torch.distributed.device_mesh import DeviceMesh  # noqa: PLC0415 - see above

    parts = [prod(grid.spatial[axis] for axis in each) for each in axes]
    cut = {axis for each in axes for axis in each}
    places: dict[tuple[int, ...], list[int]] = {}
    for rank in range(grid.world_size):
        coords = grid.coords_of(rank)
        numbers = []
        for each in axes:
            number = 0
            for axis in each:
                number = number * grid.spatial[axis] + coords[axis]
            numbers.append(number)
        others = rank // grid.group_size, *(place for axis, place in enumerate(coords) if axis not in cut)
        places.setdefault(others, [0] * prod(parts))[numbers[0] * parts[1] + numbers[1]] = rank
    ranks = torch.tensor([places[key] for key in sorted(places)]).reshape(-1, *parts)
    return DeviceMesh(device, ranks, mesh_dim_names=_DIMS)


def _part(weight: nn.Parameter, cut: Sharding, mesh: DeviceMesh, grid: ProcessGrid) -> nn.Parameter:
    """Return this rank's part of the first rank's weight, as a DTensor."""
    from torch.distributed.tensor import DTensor, Replicate, Shard  # noqa: PLC0415 - see above

    whole = weight.detach().contiguous().clone()
    dist.broadcast(whole, 0)
    local = cut.block(whole, grid.coords).clone()
    made = DTensor.from_local(
        local, mesh, [Replicate(), Shard(0), Shard(1)], run_check=False, shape=whole.shape, stride=whole.stride()
    )
    return nn.Parameter(made, requires_grad=weight.requires_grad)


def _refused(path: str, found: str, expected: str) -> UsageError:
    return UsageError(
        f"shard_weights of layer {path!r}",
        found=found,
        expected=expected,
        remedy="plan the layer in space, or leave shard_weights away",
    )
