"""Helpers of the engine's tests: virtual ranks against one process, and real ranks in processes of their own."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support.ranks import RANK, Ended, run_ranks
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

    status: int
    """Exit status."""
    report: dict[str, Any]
    """What the rank wrote."""
    output: str
    """What the rank printed."""


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    """Return a function that runs a script as several ranks and returns how each ended."""

    def run(script: str, ranks: int) -> list[Outcome]:
        ended = run_ranks(Path(__file__).parent / script, RANK, str(ranks), tmp_path, ranks=ranks)
        return [_outcome(tmp_path, rank, one) for rank, one in enumerate(ended)]

    return run


def _outcome(folder: Path, rank: int, ended: Ended) -> Outcome:
    """Collect what a rank left behind."""
    report = folder / f"report-{rank}.json"
    found = json.loads(report.read_text()) if report.exists() else {}
    return Outcome(ended.status, found, ended.out + ended.errors)
