"""One rank of the comparison: ``python -m tests.support.splitting.rank RANK RANKS FOLDER``.

FOLDER holds ``combinations.pt``; this rank's worst relative errors are written to ``FOLDER/report-RANK.json``.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._dynamo import config
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from tests.support.splitting.combination import (
    FUNCTIONAL,
    Combination,
    build,
    criterion,
    data_of,
    extent_of,
    parts_of,
)
from tests.support.splitting.functional import Level
from tests.support.splitting.reference import MOMENTUM, RATE, STEPS, Reference
from voxload.engine import shard
from voxload.engine.losses import VoxelLoss
from voxload.grid import ProcessGrid
from voxload.models.unet3d import DecoderBlock, EncoderBlock

_PREFIXES = ("_checkpoint_wrapped_module.", "_orig_mod.", "module.")


def train(how: Combination, wanted: Reference, grid: ProcessGrid) -> dict[str, float]:
    """Train as one rank; return the worst relative error of each quantity."""
    size: Any = (extent_of(how.network),) * 3
    model = build(how.network)
    model.load_state_dict(wanted.begin)
    if grid.groups > 1 or how.mode == "checkpointing":
        # One process takes statistics over the whole batch: so must all groups together. And torch's own layer counts a
        # batch twice that is computed twice, in one process too.
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call] # torch leaves it untyped
    model = shard(model, grid, shape=size)
    network = wrapped(model, how)
    measure = criterion(how.network)
    is_volume = how.network.startswith("unet")
    measure = VoxelLoss(measure, grid) if is_volume else measure
    x, target = data_of(how.network, how.mode)
    share = len(x) // grid.groups
    own = slice(grid.group * share, (grid.group + 1) * share)
    block = grid.block(size).slices
    x = x[(own, slice(None), *block)]
    target = target[(own, *block)] if is_volume else target[own]
    optimizer = torch.optim.SGD(network.parameters(), lr=RATE, momentum=MOMENTUM)
    worst = dict.fromkeys(("loss", "gradients", "state"), 0.0)
    for step in range(STEPS):
        optimizer.zero_grad()
        parts = parts_of(len(x), how.mode)
        total = torch.zeros((), dtype=torch.float64)
        for index, part in enumerate(parts):
            with _synchronised(network, last=index == len(parts) - 1):
                loss = measure(network(x[part]), target[part]) / len(parts)
                loss.backward()
            total += loss.detach()
        dist.all_reduce(total)
        distance = (total / grid.world_size / wanted.losses[step] - 1).abs().nan_to_num(nan=torch.inf)
        worst["loss"] = max(worst["loss"], distance.item())
        gradients = {name: _full(weight.grad) for name, weight in _named(network) if weight.grad is not None}
        worst["gradients"] = max(worst["gradients"], _error(gradients, wanted.gradients[step]))
        optimizer.step()
    state = {_plain(name): _full(tensor) for name, tensor in network.state_dict().items()}
    worst["state"] = _error(state, wanted.end)
    return worst


def wrapped(model: nn.Module, how: Combination) -> nn.Module:
    """Return the split network as `how` runs it."""
    # What the compiler takes as one call is compiled, and cut, as a whole.
    is_one = how.network == FUNCTIONAL and how.mode == "compiled"
    blocks = [model] if is_one else list(_blocks(model))
    if how.mode == "checkpointing":
        apply_activation_checkpointing(model, check_fn=blocks.__contains__)
    if how.mode == "compiled" and how.wrapper != "ddp":
        for block in blocks:
            block.compile(fullgraph=True, backend=how.backend)
    if how.wrapper == "ddp":
        inner: Any = torch.compile(model, fullgraph=True, backend=how.backend) if how.mode == "compiled" else model
        return DistributedDataParallel(inner)
    shape = (how.world,) if how.wrapper == "fsdp2" else (2, how.world // 2)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard")[-len(shape) :])
    for block in dict.fromkeys([*blocks, model]):
        fully_shard(block, mesh=mesh)
    return model


def _blocks(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules that users wrap by themselves: the levels of a U-Net, the stages of CosmoFlow."""
    features = getattr(model, "features", None)
    if isinstance(features, nn.Sequential):
        yield from features
    else:
        yield from (module for module in model.modules() if isinstance(module, EncoderBlock | DecoderBlock | Level))


@contextlib.contextmanager
def _synchronised(network: Any, *, last: bool) -> Iterator[None]:
    """Leave the sum of gradients over ranks to the last backward pass of a step."""
    if isinstance(network, DistributedDataParallel):
        with contextlib.nullcontext() if last else network.no_sync():
            yield
    else:
        network.set_requires_gradient_sync(last)
        yield


def _named(network: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(_plain(name), weight) for name, weight in network.named_parameters()]


def _plain(name: str) -> str:
    """Return a name without what wrappers add."""
    for prefix in _PREFIXES:
        name = name.replace(prefix, "")
    return name


def _full(tensor: Any) -> Tensor:
    """Return the whole of a tensor that FSDP may have cut."""
    whole: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return whole.detach()


def _error(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> float:
    """Return the largest difference relative to the largest wanted value of all tensors of a kind; infinity for NaN."""
    if found.keys() != wanted.keys():
        raise KeyError(f"{sorted(found)} instead of {sorted(wanted)}")
    scale = max(float(tensor.double().abs().max()) for tensor in wanted.values())
    differences = [(found[name].double() - wanted[name].double()).abs().max() for name in wanted]
    # `max` of Python passes over a NaN that is not its first value.
    return float(torch.stack(differences).max().nan_to_num(nan=torch.inf)) / scale


def main(rank: int, ranks: int, folder: Path) -> None:
    """Train every combination, all of which have so many ranks."""
    torch.set_num_threads(1)
    config.optimize_ddp = False  # as docs/explanation/engine.md says
    work: list[tuple[Combination, Reference]] = torch.load(folder / "combinations.pt", weights_only=False)
    report = {}
    dist.init_process_group(
        "gloo", init_method=f"file://{folder / 'world'}", rank=rank, world_size=ranks, timeout=timedelta(seconds=120)
    )
    for how, wanted in work:
        report[str(how)] = train(how, wanted, ProcessGrid(how.spatial, how.world, rank))
        torch.compiler.reset()
    (folder / f"report-{rank}.json").write_text(json.dumps(report))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
