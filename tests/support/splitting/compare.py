"""compare: one case on virtual ranks and in one process."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from tests.support.splitting.cases import Case
from voxload.engine import Blocks, Loopback
from voxload.engine.arithmetic.layer_plan import LayerPlan
from voxload.engine.layers.form import Form
from voxload.engine.layers.supported import FORMS, REDUCTIONS
from voxload.engine.run.join import FixedJoin, Join
from voxload.grid import ProcessGrid


@dataclass(frozen=True, slots=True)
class Errors:
    """The worst error of each quantity, relative to its largest value in one process."""

    output: float
    """Of the output."""
    into_x: float
    """Of the gradient of the input."""
    into_weights: float
    """Of the gradients of the parameters."""
    state: float
    """Of the buffers afterwards, such as running statistics."""

    @property
    def worst(self) -> float:
        """The largest of all."""
        return max(self.output, self.into_x, self.into_weights, self.state)


def compare(case: Case, *, join: Join = Join.PAD) -> Errors:
    """Run `case` on virtual ranks and in one process, forward and backward, and return how far they are apart.

    Convolutions join halos and blocks as `join` says.

    Raises UsageError where the engine refuses the case.
    """
    whole = case.x.clone().requires_grad_()
    plain = copy.deepcopy(case.layer)
    wanted = plain(whole)
    pull = torch.randn_like(wanted)
    _pull(wanted, pull)
    mesh: Any = tuple(len(bounds) - 1 for bounds in case.blocks.bounds)
    ranks = mesh[0] * mesh[1] * mesh[2]
    world = Loopback(ProcessGrid(mesh, ranks))
    layers = [copy.deepcopy(case.layer) for _ in range(ranks)]
    splits = [_split(layer, tuple(count > 1 for count in mesh)) for layer in layers]
    plan = splits[0][0].plan(case.blocks, case.wanted, min_width=0)
    is_whole = type(case.layer) in REDUCTIONS

    def work(rank: int) -> tuple[Tensor, Tensor]:
        coords = world.grid.coords_of(rank)
        form, twin = splits[rank]
        block = _of(case.x, case.blocks, coords).clone().requires_grad_()
        context: Any = SimpleNamespace(exchange=world.rank(rank), chooser=FixedJoin(join))
        found = form.run(twin, block, plan.at(coords), context)
        _pull(found, pull if is_whole else _of(pull, plan.result, coords))
        return found.detach(), torch.zeros_like(block) if block.grad is None else block.grad

    results = world.run(work)
    # A whole result is pulled at by every rank.
    shares = ranks if is_whole else 1
    output = results[0][0] if is_whole else _assembled([y for y, _ in results], plan, world.grid, wanted)
    into_x = torch.zeros_like(case.x)
    for rank, (_, grad) in enumerate(results):
        _of(into_x, case.blocks, world.grid.coords_of(rank)).copy_(grad / shares)
    return Errors(
        max(error(output, wanted.detach()), *(error(y, output) for y, _ in results if is_whole), 0.0),
        error(into_x, _into_whole(case, whole, pull)),
        _weights(layers, plain, shares),
        max((_state(twin, plain) for twin in layers), default=0.0),
    )


def _into_whole(case: Case, whole: Tensor, pull: Tensor) -> Tensor:
    """Return the gradient of the whole input.

    Of nearest neighbours in float64 on a CPU, torch's own backward looks for them in another precision than its forward
    and gives the gradient to voxels that the forward did not read. There the adjoint of the forward counts: where each
    output comes from is what the forward makes of the voxels' own numbers.
    """
    if not isinstance(case.layer, nn.Upsample) or not case.layer.mode.startswith("nearest"):
        return torch.zeros_like(case.x) if whole.grad is None else whole.grad
    numbers = torch.arange(case.x[0, 0].numel(), dtype=case.x.dtype).reshape(case.x.shape[2:])
    places = case.layer(torch.empty_like(case.x).copy_(numbers.expand_as(case.x))).long().flatten(2)
    return torch.zeros_like(case.x).flatten(2).scatter_add(2, places, pull.flatten(2)).reshape(case.x.shape)


def error(found: Tensor, wanted: Tensor) -> float:
    """Return the largest difference relative to the largest wanted value; infinity where a difference is no number."""
    if found.shape != wanted.shape:
        return float("inf")
    if not wanted.numel() or torch.equal(found, wanted):
        return 0.0
    scale = max(float(wanted[wanted.isfinite()].abs().max()) if wanted.isfinite().any() else 0.0, 1e-300)
    # `max` of Python passes over a NaN that is not its first value.
    return float((found - wanted).abs().max().nan_to_num(nan=torch.inf)) / scale


def _split(layer: nn.Module, split: tuple[bool, ...]) -> tuple[Form, nn.Module]:
    """Return the split form of a layer and the layer as it runs on blocks."""
    table = REDUCTIONS if type(layer) in REDUCTIONS else FORMS
    return table[type(layer)](layer, split)


def _pull(y: Tensor, pull: Tensor) -> None:
    """Carry `pull` back through the graph, where there is one."""
    if y.requires_grad:
        y.backward(pull)  # type: ignore[no-untyped-call] # torch leaves it untyped


def _of(x: Tensor, blocks: Blocks, coords: tuple[int, ...]) -> Tensor:
    """Return the block at `coords` of a whole volume."""
    return x[(slice(None), slice(None), *blocks.box(coords).slices)]


def _assembled(parts: list[Tensor], plan: LayerPlan, grid: ProcessGrid, like: Tensor) -> Tensor:
    """Return the whole volume of all ranks' blocks."""
    whole = torch.full_like(like, torch.nan)
    for rank, part in enumerate(parts):
        _of(whole, plan.result, grid.coords_of(rank)).copy_(part)
    return whole


def _state(layer: nn.Module, plain: nn.Module) -> float:
    """Return the worst error of the buffers, such as running statistics."""
    pairs = zip(layer.buffers(), plain.buffers(), strict=True)
    return max((error(found, wanted) for found, wanted in pairs), default=0.0)


def _weights(layers: list[nn.Module], plain: nn.Module, shares: int) -> float:
    """Return the worst error of the sums over ranks of the parameters' gradients."""
    worst = 0.0
    for name, weight in plain.named_parameters():
        grads = [twin.get_parameter(name).grad for twin in layers]
        total = sum((grad for grad in grads if grad is not None), torch.zeros_like(weight)) / shares
        worst = max(worst, error(total, torch.zeros_like(weight) if weight.grad is None else weight.grad))
    return worst
