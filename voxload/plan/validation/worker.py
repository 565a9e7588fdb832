"""Ranks of a validation: ``python -m voxload.plan.validation.worker PLAN``. The first one tells what was measured."""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import Schedule1F1B
from torch.nn.parallel import DistributedDataParallel

from voxload.engine import SplitPlan, pipeline_parts, pipeline_stage, shard
from voxload.grid import launched_as
from voxload.launch.collectives import all_gathered
from voxload.launch.processes import emit, run_rank
from voxload.launch.rendezvous import process_group
from voxload.launch.wire import decode
from voxload.plan.checkpoints import checkpoint_modules
from voxload.plan.forecast.training import OPTIMIZERS, make_network
from voxload.plan.trace.step import squares
from voxload.plan.validation.case import MeasuredStep, ValidationCase, ValidationPlan

COLLECTIVE_TIMEOUT = timedelta(minutes=10)
_WARM = 2
"""Steps that do not count: the first ones make what later ones find."""
_SECOND = "voxload: second step"
_HOST = torch.device("cpu")


Parts = tuple[float, float, float]
"""Seconds of the forward pass, of the backward pass and of the update."""


class Trainer(Protocol):
    """One rank in training, made on all ranks together."""

    given: int
    """Bytes of its blocks of a batch."""

    def step(self) -> Parts:
        """Train a step; returns the seconds of its parts."""
        ...


class BlockTrainer:
    """A network on this rank's block."""

    def __init__(self, case: ValidationCase, rank: int) -> None:
        torch.manual_seed(0)
        grid = case.setup.grid.at(rank)
        shape = case.sample[1:]
        model = make_network(case.model, case.sample)
        plan = SplitPlan.of(case.layers) if case.layers else None
        network = shard(model, grid, shape=shape, plan=plan)
        checkpoint_modules(network, case.recompute)
        if grid.world_size > 1 and case.wrapper != "ddp":
            mesh = init_device_mesh("cpu", (grid.world_size,))
            for each in network.modules() if case.wrapper == "fsdp-modules" else ():
                if each is not network and any(True for _ in each.parameters(recurse=False)):
                    fully_shard(each, mesh=mesh)
            fully_shard(network, mesh=mesh)
            self.network: nn.Module = network
        else:
            self.network = DistributedDataParallel(network) if grid.world_size > 1 else network
        self.optimizer = OPTIMIZERS[case.optimizer]([each for each in self.network.parameters() if each.requires_grad])
        self.x = torch.randn(case.samples, case.sample[0], *grid.block(shape).shape)
        self.given = self.x.nbytes

    def step(self) -> Parts:
        """See Trainer."""
        begin = perf_counter()
        loss = squares(self.network(self.x))
        forward = perf_counter()
        loss.backward()  # type: ignore[no-untyped-call] # torch leaves it untyped
        backward = perf_counter()
        self.optimizer.step()
        end = perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        return forward - begin, backward - forward, end - backward


class StageTrainer:
    """A stage of a pipeline."""

    def __init__(self, case: ValidationCase, rank: int) -> None:
        torch.manual_seed(0)
        setup, shape, channels = case.setup, case.sample[1:], case.sample[0]
        grid = setup.grid.at(rank)
        parts = pipeline_parts(make_network(case.model, case.sample), case.cuts, shape=shape, channels=channels)
        has_others = len(setup.replicas()) > 1
        stage = pipeline_stage(
            parts,
            grid,
            shape,
            channels=channels,
            samples=setup.at_once,
            device=_HOST,
            wrap=_averaged if has_others else None,
        )
        self._schedule = Schedule1F1B(stage, setup.microbatches, loss_fn=lambda result, _: squares(result))
        self._given = [torch.randn(case.samples, channels, *grid.block(shape).shape)] if stage.is_first else []
        self.given = sum(each.nbytes for each in self._given)
        del parts
        gc.collect()  # the other stages' layers
        # A loss gets its part of something along the batch: here it takes nothing of it.
        self._target = torch.zeros(case.samples, 1) if stage.is_last else None
        self.optimizer = OPTIMIZERS[case.optimizer]([each for each in stage.submod.parameters() if each.requires_grad])

    def step(self) -> Parts:
        """See Trainer; passes are told together."""
        begin = perf_counter()
        self._schedule.step(*self._given, target=self._target, return_outputs=False)
        passes = perf_counter()
        self.optimizer.step()
        end = perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        return passes - begin, 0.0, end - passes


def _averaged(part: nn.Module, ranks: dist.ProcessGroup | None) -> nn.Module:
    return DistributedDataParallel(part, process_group=ranks)


def _trainer(case: ValidationCase, rank: int) -> Trainer:
    return StageTrainer(case, rank) if case.stages > 1 else BlockTrainer(case, rank)


def most_memory(case: ValidationCase, rank: int) -> int:
    """Return the most bytes that a rank has in the second step of a trainer made for it, its blocks apart.

    Ranks in the middle of a group, of all stages, are looked at; others take part in the steps, and return 0.
    """
    setup = case.setup
    if rank not in {setup.stage_grid(stage).rank for stage in range(setup.stages)}:
        trainer = _trainer(case, rank)
        for _ in range(2):
            trainer.step()
        return 0
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        trainer = _trainer(case, rank)
        trainer.step()
        with torch.profiler.record_function(_SECOND):
            trainer.step()
    with tempfile.TemporaryDirectory(prefix="voxload-") as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(os.fspath(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    begin = min(each["ts"] for each in events if each.get("name") == _SECOND)
    seen = sorted((each["ts"], each["args"]) for each in events if each.get("name") == "[memory]")
    held = most = 0
    for when, args in seen:
        if args["Device Type"] == 0:
            held += args["Bytes"]
            most = max(most, held) if when >= begin else most
    return most - trainer.given


def measure(case: ValidationCase, rank: int) -> tuple[tuple[float, ...], int]:
    """Return medians of the parts of a step, of the whole, and its spread; and bytes, where they are looked at."""
    trainer = _trainer(case, rank)
    parts = []
    for number in range(_WARM + case.rounds):
        if case.ranks > 1:
            dist.barrier()
        taken = trainer.step()
        if number >= _WARM:
            parts.append(taken)
    del trainer
    memory = most_memory(case, rank) if case.looks else 0
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
