"""Lion in one process: beside lion-pytorch, and as torch's own tools meet it."""

from __future__ import annotations

import copy
from typing import Any

import lion_pytorch
import pytest
import torch
from torch import nn

from voxload.errors import UsageError
from voxload.grid import ProcessGrid
from voxload.parallel import Lion


def _network() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 3))


def _loss(network: nn.Module, seed: int) -> torch.Tensor:
    drawn = torch.Generator().manual_seed(seed)
    x, y = torch.randn(4, 6, generator=drawn), torch.randn(4, 3, generator=drawn)
    return nn.functional.mse_loss(network(x), y)


def _step(network: nn.Module, optimiser: torch.optim.Optimizer, seed: int) -> None:
    optimiser.zero_grad()
    _loss(network, seed).backward()  # type: ignore[no-untyped-call]
    optimiser.step()


@pytest.mark.parametrize("combine", ["majority", "p-bit", "mean", "exact"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_one_worker_is_lion_pytorch(combine: str, dtype: torch.dtype) -> None:
    """Bit for bit: weights and momentum, with a unit that is dead, a weight without a gradient, options of groups."""
    ours, theirs = _network().to(dtype), _network().to(dtype)
    made: list[Any] = []
    kinds: Any = ((ours, Lion, {"combine": combine}), (theirs, lion_pytorch.Lion, {}))
    for network, kind, words in kinds:
        with torch.no_grad():
            network[0].bias[0] = -100.0
        groups = [{"params": network[0].parameters()}, {"params": network[2].parameters(), "lr": 0.03}]
        groups.append({"params": [nn.Parameter(torch.ones(3, dtype=dtype))]})
        made.append(kind(groups, lr=0.02, betas=(0.85, 0.98), weight_decay=0.3, **words))
    for step in range(8):
        for network, optimiser in zip((ours, theirs), made, strict=True):
            drawn = torch.Generator().manual_seed(step)
            optimiser.zero_grad()
            network(torch.randn(4, 6, generator=drawn).to(dtype)).square().mean().backward()
            optimiser.step()
        for own, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert torch.equal(own, other)
            assert torch.equal(made[0].state[own]["exp_avg"], made[1].state[other]["exp_avg"])


def test_states_of_either_are_taken_by_the_other() -> None:
    """A run goes on from lion-pytorch's state, and lion-pytorch from ours."""
    ours, theirs = _network(), _network()
    own, other = Lion(ours.parameters(), lr=0.01), lion_pytorch.Lion(theirs.parameters(), lr=0.01)
    for step in range(2):
        _step(ours, own, step)
        _step(theirs, other, step)
    taken, given = Lion(theirs.parameters(), lr=0.5), lion_pytorch.Lion(ours.parameters(), lr=0.5)
    taken.load_state_dict(other.state_dict())
    given.load_state_dict(copy.deepcopy(own.state_dict()))
    _step(theirs, taken, 2)
    _step(ours, given, 2)
    assert all(torch.equal(*pair) for pair in zip(ours.parameters(), theirs.parameters(), strict=True))


def test_torchs_tools_meet_it_as_any_optimiser() -> None:
    """A closure, a schedule, clipping, and a GradScaler that skips a step and goes on."""
    network = _network()
    optimiser = Lion(network.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 0.5**step)

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        loss = _loss(network, 1)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    before = [each.detach().clone() for each in network.parameters()]
    assert optimiser.step(closure).item() > 0
    schedule.step()
    _step(network, optimiser, 2)
    for each, first in zip(network.parameters(), before, strict=True):
        assert (each - first).abs().max() <= 0.1 + 0.05 + 1e-6
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=100)
    for is_broken in (True, False):
        other = copy.deepcopy(network)
        rival = lion_pytorch.Lion(other.parameters(), lr=0.025)
        rival.load_state_dict(copy.deepcopy(optimiser.state_dict()))
        known = [each.detach().clone() for each in network.parameters()]
        optimiser.zero_grad()
        scaler.scale(_loss(network, 3)).backward()  # type: ignore[no-untyped-call]
        if is_broken:
            next(network.parameters()).grad[0, 0] = torch.inf  # type: ignore[index]
        scaler.step(optimiser)
        scaler.update()
        if is_broken:
            assert all(torch.equal(*pair) for pair in zip(network.parameters(), known, strict=True))
            assert scaler.get_scale() == 2.0
        else:
            rival.param_groups[0]["lr"] = optimiser.param_groups[0]["lr"]
            _step(other, rival, 3)
            assert all(torch.equal(*pair) for pair in zip(network.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"lr": -1.0}, r"lr=-1.0"),
        ({"lr": float("nan")}, r"lr=nan"),
        ({"betas": (0.9, 1.0)}, r"two betas in \[0, 1\)"),
        ({"momentum": -1}, r"momentum=-1"),
        ({"momentum": 0.5}, r"momentum=0.5"),
        ({"weight_decay": -0.1}, r"weight_decay=-0.1"),
        ({"combine": "sum"}, r"combine: found 'sum', expected 'majority', 'p-bit', 'mean', 'exact'"),
        ({"combine": "p-bit", "bits": 5}, r"expected 1, 2, 4 or 8"),
    ],
)
def test_options_out_of_range_are_refused(words: dict[str, Any], said: str) -> None:
    """By name."""
    with pytest.raises(UsageError, match=said):
        Lion(_network().parameters(), **words)


def test_a_grid_without_its_ranks_is_refused() -> None:
    """By the first step: torch.distributed does not run."""
    network = _network()
    optimiser = Lion(network.parameters(), ProcessGrid((2, 1, 1), 4, 0))
    with pytest.raises(UsageError, match=r"torch.distributed is not initialised.*init_process_group"):
        _step(network, optimiser, 0)


def test_what_it_cannot_train_is_refused() -> None:
    """Whole numbers, and sparse gradients."""
    with pytest.raises(UsageError, match=r"found one of torch.complex64"):
        Lion([nn.Parameter(torch.ones(3, dtype=torch.complex64))])
    table = nn.Embedding(4, 2, sparse=True)
    optimiser = Lion(table.parameters())
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(UsageError, match="a sparse gradient"):
        optimiser.step()
