"""A network's own forward on the blocks of virtual ranks, beside the same forward in one process, in float64."""

from __future__ import annotations

import copy
from collections.abc import Callable
from math import prod
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.engine.forward.recorded import recorded
from voxload.engine import Blocks, Loopback
from voxload.engine.comparison import relative_error
from voxload.engine.forward.planning import plan_forward, returned
from voxload.engine.forward.rule import Context
from voxload.engine.forward.running import run
from voxload.engine.forward.sharding import Sharding
from voxload.grid import ProcessGrid
from voxload.models import CosmoFlow, UNet3D

TOLERANCE = 1e-12
SPATIALS = [(2, 1, 1), (2, 1, 2), (1, 3, 2)]


def errors_of(model: nn.Module, x: Tensor, spatial: tuple[int, int, int], **options: Any) -> dict[str, float]:
    """Return the relative errors of results, gradients and buffers, of ranks that are threads."""
    model = model.double()
    plain, whole = copy.deepcopy(model), x.clone().requires_grad_()
    wanted = plain(whole)
    pull = torch.randn_like(wanted)
    (wanted * pull).sum().backward()
    world = Loopback(ProcessGrid(spatial, prod(spatial)))
    given = Sharding.of_volume(Blocks.of(world.grid, tuple(x.shape[2:])), leading=tuple(x.shape[:2]))
    recording = recorded(model, x)
    plan = plan_forward(recording, [given], **options)
    result = next(cut for cut in plan.results)
    left = returned(result, given.axes())
    weights = {id(weight): weight for weight in model.parameters()}
    twins = [copy.deepcopy(model, dict(weights)) for _ in range(prod(spatial))]
    model.zero_grad()

    def work(rank: int) -> tuple[float, Tensor]:
        coords = world.grid.coords_of(rank)
        block = given.block(x, coords).clone().requires_grad_()
        found = run(twins[rank], (block,), {}, [given], plan=plan, here=Context(coords, spatial, world.rank(rank)))
        (found * left.block(pull, coords)).sum().backward()
        assert block.grad is not None
        return relative_error(found.detach(), left.block(wanted.detach(), coords)), block.grad

    rows = world.run(work)
    shares = prod(spatial) if left.is_whole else 1
    assert whole.grad is not None
    errors = {"result": max(row[0] for row in rows)}
    errors["input"] = max(
        relative_error(grad / shares, given.block(whole.grad, world.grid.coords_of(rank)))
        for rank, (_, grad) in enumerate(rows)
    )
    scale = max(float(weight.grad.abs().max()) for weight in plain.parameters() if weight.grad is not None)
    for name, weight in plain.named_parameters():
        if weight.grad is not None:
            total = model.get_parameter(name).grad
            assert total is not None
            errors[name] = relative_error(total / shares, weight.grad, scale=scale)
    for name, buffer in plain.named_buffers():
        errors[name] = max(relative_error(twin.get_buffer(name), buffer) for twin in twins)
    return errors


class Asks(nn.Module):
    """Asks for types, extents and attributes, and calls functions where others have layers."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 2, 3, 3, 3))
        self.scale = nn.Parameter(torch.randn(4))

    def forward(self, x: Tensor) -> Any:
        """Return a volume of two channels."""
        y = nn.functional.conv3d(x, self.weight / self.weight.norm(), padding=1)
        y = y * 2 if isinstance(y, torch.Tensor) else y  # type: ignore[redundant-expr] # what networks ask all the same
        y = y + 1 if y.shape[2:] == x.shape[2:] else y
        batch, channels, *extents = y.shape
        y = (y.reshape(batch, channels, -1) + self.scale[:, None]).view(batch, channels, *extents)
        one, other = y.chunk(2, dim=1)
        y = one.permute(0, 2, 3, 4, 1).sigmoid().movedim(-1, 1) * other
        y += torch.linspace(0, 1, extents[0], dtype=y.dtype)[:, None, None]
        return nn.functional.relu(y, inplace=True)


NETWORKS: dict[str, Callable[[], tuple[nn.Module, tuple[int, ...]]]] = {
    "U-Net": lambda: (UNet3D(2, 3, widths=(2, 4, 6)), (8, 16, 12)),
    "U-Net of LBANN": lambda: (UNet3D(2, 3, variant="lbann", widths=(2, 4, 6)), (8, 16, 12)),
    "CosmoFlow": lambda: (CosmoFlow(32, 2, 2, dropout=0.0), (32, 32, 32)),
    "functions": lambda: (Asks(), (5, 7, 6)),
}


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("spatial", SPATIALS, ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_forward_gives_split_what_it_gives_whole(name: str, spatial: tuple[int, int, int]) -> None:
    """Results, gradients and running statistics to rounding, with blocks that are uneven and thin."""
    torch.manual_seed(0)
    model, shape = NETWORKS[name]()
    errors = errors_of(model, torch.randn(2, 2, *shape, dtype=torch.float64), spatial)
    assert max(errors.values()) <= TOLERANCE, errors
