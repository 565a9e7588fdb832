"""Helpers of the engine's tests: virtual ranks against one process, and real ranks in processes of their own."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from voxload.engine import Loopback, shard
from voxload.grid import ProcessGrid

Compare = Callable[..., dict[str, float]]
Launch = Callable[..., list["Outcome"]]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Keep small operations on one core; more threads only slow them down."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _error(found: Tensor, wanted: Tensor) -> float:
    """Return the largest difference relative to the largest wanted value."""
    if found.shape != wanted.shape:
        pytest.fail(f"shape {tuple(found.shape)}, expected {tuple(wanted.shape)}")
    if not wanted.numel():
        return 0.0
    scale = max(wanted.abs().max().item(), 1e-300)
    return (found - wanted).abs().max().item() / scale


def _compare(model: nn.Module, x: Tensor, spatial: tuple[int, int, int], *, shape: Any = None) -> dict[str, float]:
    """Run `model` in one process and on virtual ranks; return the worst relative error of every quantity."""
    whole = x.clone().requires_grad_()
    wanted = model(whole)
    pull = torch.randn_like(wanted)
    (wanted * pull).sum().backward()
    ranks = spatial[0] * spatial[1] * spatial[2]
    grid = ProcessGrid(spatial, ranks)
    world = Loopback(grid)
    copies = [copy.deepcopy(model) for _ in range(ranks)]
    for twin in copies:
        twin.zero_grad()
    shards = [shard(twin, grid.at(rank), shape=shape, exchange=world.rank(rank)) for rank, twin in enumerate(copies)]

    def work(rank: int) -> tuple[Tensor, Tensor]:
        block = x[(slice(None), slice(None), *grid.at(rank).block(x.shape[2:]).slices)].clone().requires_grad_()
        found = shards[rank](block)
        (found * pull).sum().backward()
        assert block.grad is not None
        # Every rank of the group has the loss, so the sum that autograd gives counts it once per rank.
        return found.detach(), block.grad / ranks

    results = world.run(work)
    assert whole.grad is not None
    dx = torch.zeros_like(x)
    for rank, (_, grad) in enumerate(results):
        dx[(slice(None), slice(None), *grid.at(rank).block(x.shape[2:]).slices)] = grad
    errors = {"y": max(_error(found, wanted.detach()) for found, _ in results), "dx": _error(dx, whole.grad)}
    for name, weight in model.named_parameters():
        assert weight.grad is not None
        grads = [dict(twin.named_parameters())[name].grad for twin in copies]
        assert all(grad is not None for grad in grads)
        total = torch.stack([grad for grad in grads if grad is not None]).sum(0) / ranks
        errors[f"d{name}"] = _error(total, weight.grad)
    model.zero_grad()
    return errors


@pytest.fixture(scope="session")
def compare() -> Compare:
    """Return a function that compares a split model with the model in one process."""
    return _compare


@dataclass
class Outcome:
    """How one rank's process ended."""

    status: int | None
    """Exit status; None when it was still running at the limit and was killed."""
    report: dict[str, Any]
    """What the rank wrote."""
    output: str
    """What the rank printed."""


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    """Return a function that runs a script as several ranks and returns how each ended."""

    def run(script: str, ranks: int, *, limit: float) -> list[Outcome]:
        environ = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        processes = []
        for rank in range(ranks):
            with (tmp_path / f"output-{rank}").open("wb") as output:
                processes.append(
                    subprocess.Popen(
                        [sys.executable, str(Path(__file__).parent / script), str(rank), str(ranks), str(tmp_path)],
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        env=environ,
                    )
                )
        deadline = time.monotonic() + limit
        try:
            statuses = [_status(process, deadline) for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
        return [_outcome(tmp_path, rank, status) for rank, status in enumerate(statuses)]

    return run


def _status(process: subprocess.Popen[bytes], deadline: float) -> int | None:
    """Return the exit status of `process`, or None when it runs beyond `deadline`."""
    try:
        return process.wait(max(deadline - time.monotonic(), 0.1))
    except subprocess.TimeoutExpired:
        return None


def _outcome(folder: Path, rank: int, status: int | None) -> Outcome:
    """Collect what a rank left behind."""
    report = folder / f"report-{rank}.json"
    return Outcome(
        status,
        json.loads(report.read_text()) if report.exists() else {},
        (folder / f"output-{rank}").read_text(errors="replace"),
    )
