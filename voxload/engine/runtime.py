"""What the functions that `regions` writes call: one small function per kind of operation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from voxload.engine.dropout import Dropped
from voxload.engine.form import Form, Tile
from voxload.engine.passage import Passage
from voxload.engine.reduction import Reduction
from voxload.engine.reshape import moved
from voxload.errors import InternalError


def enter(module: nn.Module, region: int, passage: Passage, *values: Any) -> Any:
    """Call a module of the user's with what its traced call used, and return what was used of its results."""
    return module(*values, passage=passage, region=region)


def item(values: tuple[Any, ...], index: int) -> Any:
    """Return one of a module's results."""
    return values[index]


def layer(module: nn.Module, passage: Passage, site: int, x: Tensor) -> Tensor:
    """Return what a layer with a split form makes of this rank's block."""
    form, tile = _planned(passage, site)
    return form.run(module, x, tile, passage)


def drop(module: nn.Module, passage: Passage, site: int, x: Tensor) -> Tensor:
    """Return what dropout makes of a value that every rank has: the same on all of them."""
    form = passage.plan.forms[site]
    if not isinstance(form, Dropped):
        raise InternalError(f"operation {site}", found="no dropout")
    y: Tensor = module(x, (0,) * x.ndim, passage.seed + form.site)
    return y


def mean(passage: Passage, site: int, x: Tensor, keeps: bool) -> Tensor:
    """Return the mean over a volume, (B, C), or (B, C, 1, 1, 1) where the dimensions are kept."""
    form, tile = _planned(passage, site)
    if not isinstance(form, Reduction):
        raise InternalError(f"operation {site}", found="no mean")
    y = form.reduced(x, tile, passage)
    return y if keeps else y.flatten(1)


def move(passage: Passage, site: int, index: int, x: Tensor) -> Tensor:
    """Return input number `index` of an operation in the cut in which it is taken."""
    return moved(x, passage.plan.parts[site][index], passage.exchange)


def begin_draw(passage: Passage, site: int) -> list[tuple[str, Tensor]]:
    """Set torch's random numbers to those that all ranks of the group draw here; return the states of before."""
    states = [("cpu", torch.get_rng_state())]
    if torch.cuda.is_available():
        states.append(("cuda", torch.cuda.get_rng_state()))
    torch.manual_seed(int(passage.seed) + site)
    return states


def end_draw(states: list[tuple[str, Tensor]]) -> None:
    """Go on with the random numbers of before."""
    for device, state in states:
        if device == "cuda":
            torch.cuda.set_rng_state(state)
        else:
            torch.set_rng_state(state)


def _planned(passage: Passage, site: int) -> tuple[Form, Tile]:
    """Return the form and this rank's tile of the layer at `site`."""
    form, tile = passage.plan.forms[site], passage.plan.tiles[site]
    if form is None or tile is None:
        raise InternalError(f"operation {site}", found="no plan")
    return form, tile
