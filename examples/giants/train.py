"""Train a stacked auto-encoder whose weights no rank has whole, on clips in tar shards or of its own making.

torchrun --nproc-per-node=4 examples/giants/train.py clips/ --network scaled --steps 10 --checkpoint run
torchrun --nproc-per-node=2 examples/giants/train.py clips/ --network scaled --steps 20 --checkpoint run   # goes on

FSDP2 keeps a part of each weight on a rank, a stage runs again in the backward pass, and torch.distributed.checkpoint
writes the parts, which any number of ranks goes on from: weights, optimiser and the loader's place in its epoch.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DistributedSampler

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import voxload
from examples.giants import autoencoder

NETWORKS = {"scaled": autoencoder.scaled, "small": autoencoder.small}


class Recomputed(nn.Module):
    """A stage that keeps what comes in and runs again in the backward pass."""

    def __init__(self, stage: nn.Module) -> None:
        super().__init__()
        self.stage = stage

    def forward(self, below: Tensor) -> Any:
        """See `autoencoder.Stage`."""
        return checkpoint(self.stage, below, use_reentrant=False)


def shard(model: autoencoder.StackedAutoencoder, ranks: int) -> None:
    """Have each rank keep a part of each layer's weights, gathered when that layer computes."""
    mesh = init_device_mesh("cpu", (ranks,)) if ranks > 1 else None
    for layer in [each for each in model.modules() if isinstance(each, autoencoder.LocalLayer)] if mesh else []:
        fully_shard(layer, mesh=mesh)
    for place, stage in enumerate(model.stages):
        model.stages[place] = Recomputed(stage)
    if mesh is not None:
        fully_shard(model, mesh=mesh)


@torch.no_grad()
def begin(model: nn.Module) -> None:
    """Give each weight its first value, the same over any number of ranks; a layer at a time is whole."""
    model.to_empty(device="cpu")
    for seed, each in enumerate(model.parameters()):
        whole = autoencoder.LocalLayer.first_values(each.shape, seed).to(each.dtype)
        if isinstance(each, DTensor):
            part = distribute_tensor(whole, each.device_mesh, each.placements, src_data_rank=None)
            each.to_local().copy_(part.to_local())
        else:
            each.copy_(whole)


def train(
    model: nn.Module, loader: voxload.DataLoader, *, steps: int, dtype: torch.dtype, place: Path | None
) -> Iterator[float]:
    """Train up to a number of steps, from where a checkpoint stands, and yield each step's mean loss over all ranks."""
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    saved = [] if place is None else sorted(place.glob("step-*/.metadata"))  # written last: others are not whole
    done = _restored(model, optimiser, loader, saved[-1].parent) if saved else 0
    for epoch in count(loader.state_dict()["epoch"]):
        loader.set_epoch(epoch)
        for (clips,) in loader:
            loss = model(clips.to(dtype) / 255)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            done += 1
            mean = loss.detach().clone()
            if dist.is_initialized():
                dist.all_reduce(mean)
                mean /= dist.get_world_size()
            yield mean.item()
            if done >= steps:
                break
        if done >= steps:
            break
    if place is not None:
        save(_state(model, optimiser, loader, done), checkpoint_id=place / f"step-{done:08}")


def _state(model: nn.Module, optimiser: torch.optim.Optimizer, loader: voxload.DataLoader, done: int) -> dict[str, Any]:
    """Return all that decides how a run goes on; the loader's place as text, for its keys are not always the same."""
    weights, moments = get_state_dict(model, optimiser)
    return {"model": weights, "optimiser": moments, "loader": json.dumps(loader.state_dict()), "steps": done}


def _restored(model: nn.Module, optimiser: torch.optim.Optimizer, loader: voxload.DataLoader, place: Path) -> int:
    """Go on from a checkpoint, of any number of ranks; return its steps."""
    state = _state(model, optimiser, loader, 0)
    load(state, checkpoint_id=place)
    set_state_dict(model, optimiser, model_state_dict=state["model"], optim_state_dict=state["optimiser"])
    loader.load_state_dict(json.loads(state["loader"]))
    return int(state["steps"])


def main() -> None:
    """Train, and print each step's loss as rank 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clips", help="a catalogue of clips, its folder, or a pattern of shards")
    parser.add_argument("--network", choices=NETWORKS, default="scaled")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batch", type=int, default=4, help="clips of a step, of all ranks together")
    parser.add_argument("--checkpoint", type=Path, help="folder to go on from, and to write when it is over")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    chosen = parser.parse_args()
    dist.init_process_group("gloo")
    ranks = dist.get_world_size()
    dtype = getattr(torch, chosen.dtype)
    with torch.device("meta"):  # no rank has all of it, not even at first
        model = NETWORKS[chosen.network]().to(dtype)
    shard(model, ranks)
    begin(model)
    data = voxload.VolumeDataset(chosen.clips, grid=voxload.ProcessGrid.from_env((1, 1, 1)))
    # Over any number of ranks the steps have the same clips.
    order: DistributedSampler[Any] = DistributedSampler(data, ranks, dist.get_rank(), seed=1)
    loader = voxload.DataLoader(data, chosen.batch // ranks, sampler=order)
    weights = sum(each.numel() for each in model.parameters())
    for step, loss in enumerate(train(model, loader, steps=chosen.steps, dtype=dtype, place=chosen.checkpoint), 1):
        if dist.get_rank() == 0:
            print(f"step {step} of this run, {weights / 1e6:.1f} M weights on {ranks} ranks: loss {loss!r}", flush=True)
    loader.close()
    data.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
