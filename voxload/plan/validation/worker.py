"""Ranks of a validation: ``python -m voxload.plan.validation.worker PLAN``. The first one tells what was measured."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from datetime import timedelta
from itertools import accumulate
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves

from voxload.engine import SplitPlan, shard
from voxload.grid import ProcessGrid, launched_as
from voxload.launch.collectives import all_gathered
from voxload.launch.processes import emit, run_rank
from voxload.launch.rendezvous import process_group
from voxload.launch.wire import decode
from voxload.plan.forecast.setups import Setup
from voxload.plan.forecast.training import OPTIMIZERS, make_network
from voxload.plan.trace.step import squares
from voxload.plan.validation.case import MeasuredStep, ValidationCase, ValidationPlan

COLLECTIVE_TIMEOUT = timedelta(minutes=10)
_WARM = 2
"""Steps that do not count: the first ones make what later ones find."""


class Trainer:
    """A network of one rank in training, and its input; made on all ranks together."""

    def __init__(self, case: ValidationCase, grid: ProcessGrid) -> None:
        torch.manual_seed(0)
        shape = case.sample[1:]
        model = make_network(case.model, case.sample)
        plan = SplitPlan.of(case.layers) if case.layers else None
        network = shard(model, grid, shape=shape, plan=plan)
        self.network: nn.Module = DistributedDataParallel(network) if grid.world_size > 1 else network
        self._parameters = [each for each in self.network.parameters() if each.requires_grad]
        self.optimizer = OPTIMIZERS[case.optimizer](self._parameters)
        self.x = torch.randn(case.samples, case.sample[0], *grid.block(shape).shape)
        self._is_replicated = grid.world_size > 1

    def step(self) -> tuple[float, float, float]:
        """Train a step; returns the seconds of its three parts."""
        begin = perf_counter()
        loss = squares(self.network(self.x))
        forward = perf_counter()
        loss.backward()  # type: ignore[no-untyped-call] # torch leaves it untyped
        backward = perf_counter()
        self.optimizer.step()
        end = perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        return forward - begin, backward - forward, end - backward

    def memory(self) -> int:
        """Train a step, and return the most bytes that this rank has in it."""
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            self.step()
        with tempfile.TemporaryDirectory(prefix="voxload-") as folder:
            path = Path(folder) / "trace.json"
            profile.export_chrome_trace(os.fspath(path))
            events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
        seen = sorted((each["ts"], each["args"]) for each in events if each.get("name") == "[memory]")
        changes = [args["Bytes"] for _, args in seen if args["Device Type"] == 0]
        state = [each for each in tree_leaves(self.optimizer.state) if isinstance(each, Tensor)]
        fixed = [*self.network.parameters(), *self.network.buffers(), *state]
        if self._is_replicated:
            fixed += self._parameters  # DDP's buckets are as large
        return max(accumulate(changes), default=0) + sum(each.numel() * each.element_size() for each in fixed)


def measure(case: ValidationCase, rank: int) -> tuple[tuple[float, ...], int]:
    """Return medians of the parts of a step, of the whole, and its spread; and bytes of a rank in the middle."""
    setup = Setup(case.spatial, case.groups, case.samples)
    trainer = Trainer(case, setup.grid.at(rank))
    parts = []
    for number in range(_WARM + case.rounds):
        if case.ranks > 1:
            dist.barrier()
        taken = trainer.step()
        if number >= _WARM:
            parts.append(taken)
    is_middle = rank == setup.grid.rank
    memory = trainer.memory() if is_middle else (trainer.step(), 0)[1]
    totals = [sum(each) for each in parts]
    low, _, high = quantiles(totals, n=4) if len(totals) > 1 else (totals[0],) * 3
    medians = [median(each) for each in zip(*parts, strict=True)]
    whole = median(totals)
    return (*medians, whole, (high - low) / 2 / whole), memory


def measured(plan: ValidationPlan) -> Iterator[MeasuredStep]:
    """Yield what the cases take, on the rank of the job that the launcher made of this process."""
    rank, world_size = launched_as(os.environ)
    with process_group(rank, world_size, timeout=COLLECTIVE_TIMEOUT), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of what is made whole: a plan says so itself
        for case in plan.cases:
            mine = measure(case, rank)
            found = all_gathered(mine, tuple[tuple[float, ...], int]) if world_size > 1 else [mine]
            slowest = max((each for each, _ in found), key=lambda each: each[3])
            forward, backward, update, whole, spread = slowest
            yield MeasuredStep(forward, backward, update, whole, spread, max(memory for _, memory in found))


def work(text: str) -> None:
    """Run the cases of a plan as JSON; rank 0 tells what each took."""
    for found in measured(decode(text.encode(), ValidationPlan)):
        if int(os.environ.get("RANK", "0")) == 0:
            emit({"event": "step"} | {name: getattr(found, name) for name in MeasuredStep.__dataclass_fields__})


if __name__ == "__main__":
    sys.exit(run_rank("voxload.plan.validation.worker", sys.argv[1:], work))
