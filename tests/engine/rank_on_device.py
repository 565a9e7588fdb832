"""One rank that trains a U-Net through the engine, beside plain torch: ``DEVICE FILE``, printed as JSON.

The exchange is torch.distributed's, over NCCL on a GPU and gloo on the host: no message travels between blocks, but
sums over the group do.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parents[2]))

from voxload.engine import P2P, shard
from voxload.engine.losses import VoxelLoss
from voxload.grid import ProcessGrid
from voxload.models import UNet3D

SHAPE = (16, 16, 16)
_CLASSES, _STEPS, _RATE = 3, 3, 1e-2
WAYS = ("plain", "ddp", "fsdp2", "compiled", "half")


class Trained:
    """A network, as one of `WAYS` trains it."""

    def __init__(self, model: nn.Module, way: str, device: torch.device, loss: nn.Module) -> None:
        self.model, self._device, self._loss, self._is_half = model, device, loss, way == "half"
        self._optimiser = torch.optim.SGD(model.parameters(), lr=_RATE, momentum=0.9)
        self._scaler = torch.amp.GradScaler(device.type, enabled=self._is_half)

    def steps(self, x: Tensor, truth: Tensor) -> list[float]:
        """Return the losses of a few steps."""
        found = []
        for _ in range(_STEPS):
            self._optimiser.zero_grad()
            with self._cast():
                loss = self._loss(self.model(x), truth)
            self._scaler.scale(loss).backward()
            self._scaler.step(self._optimiser)
            self._scaler.update()
            found.append(loss.item())
        return found

    @contextlib.contextmanager
    def _cast(self) -> Iterator[None]:
        kind = torch.float16 if self._device.type == "cuda" else torch.bfloat16
        with torch.autocast(self._device.type, kind, enabled=self._is_half):
            yield


def compare(way: str, device: torch.device) -> float:
    """Return the worst relative difference of losses and weights from those of plain torch, after training.

    Of half types it is how far that is from single precision, over how far plain torch in the half type is from it:
    processors round in different orders, and what is small, such as a bias after three steps, differs by percents.
    """
    torch.manual_seed(3)
    dtype = torch.float32 if way == "half" else torch.float64
    model = UNet3D(2, _CLASSES, variant="lbann", widths=(4, 6, 8)).to(device, dtype)
    x = torch.randn(2, 2, *SHAPE, dtype=dtype, device=device)
    truth = torch.randint(0, _CLASSES, (2, *SHAPE), device=device)
    plain = Trained(copy.deepcopy(model), "half" if way == "half" else "plain", device, nn.CrossEntropyLoss())
    exact = Trained(copy.deepcopy(model), "plain", device, nn.CrossEntropyLoss())
    grid = ProcessGrid()
    exchange = P2P(grid)
    split: Any = shard(model, grid, shape=SHAPE, exchange=exchange)
    if way == "ddp":
        split = DistributedDataParallel(split)
    if way == "fsdp2":
        fully_shard(split, mesh=init_device_mesh(device.type, (1,)))
    if way == "compiled":
        split = torch.compile(split, fullgraph=True, backend="inductor" if device.type == "cuda" else "aot_eager")
    ours = Trained(split, way, device, VoxelLoss(nn.CrossEntropyLoss(), grid, exchange=exchange))
    losses = {each: each.steps(x, truth) for each in (plain, ours, *([exact] if way == "half" else []))}
    if way != "half":
        return _difference(ours, plain, losses)
    return _difference(ours, exact, losses) / _difference(plain, exact, losses)


def _difference(one: Trained, other: Trained, losses: dict[Trained, list[float]]) -> float:
    """Return the worst relative difference of losses and weights."""
    pairs = zip(losses[one], losses[other], strict=True)
    apart = [abs(found - wanted) / abs(wanted) for found, wanted in pairs]
    for found, wanted in zip(one.model.parameters(), other.model.parameters(), strict=True):
        whole = found.full_tensor() if hasattr(found, "full_tensor") else found
        apart.append(float((whole - wanted).detach().abs().max() / wanted.detach().abs().max().clamp_min(1e-3)))
    # `max` passes over a NaN that is not its first value.
    return math.inf if any(map(math.isnan, apart)) else max(apart)


def main(name: str, meeting: str) -> None:
    """Compare every way; `meeting` is where ranks would meet."""
    device = torch.device(name, 0) if name == "cuda" else torch.device(name)
    torch.backends.cudnn.deterministic = True
    backend = "nccl" if name == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"file://{meeting}", rank=0, world_size=1)
    try:
        print(json.dumps({way: compare(way, device) for way in WAYS}))  # noqa: T201 - what the test reads
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
