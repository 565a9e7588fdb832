"""Control flow on values, of which no rank has all: each kind is told on every rank, before any message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.engine.forward.onblocks_world import GRID, SHAPE, World, volume
from voxload.engine import Loopback, shard
from voxload.engine.exchange.in_process import LoopbackRank
from voxload.errors import UsageError


def _while(_: Any, x: Tensor) -> Tensor:
    while x.abs().max() > 1:
        x = x / 2
    return x


def _assert(_: Any, x: Tensor) -> Tensor:
    assert (x < 1e9).all()
    return x


def _match(_: Any, x: Tensor) -> Tensor:
    match x.sum().sign():
        case 1:
            return x
        case _:
            return -x


def _counts(_: Any, x: Tensor) -> Tensor:
    for _number in range(x.argmax()):
        x = x + 1
    return x


KINDS: dict[str, Callable[[Any, Tensor], Any]] = {
    "if": lambda _, x: x if x.mean() > 0 else -x,
    "not": lambda _, x: x if not x.any() else -x,
    "and": lambda _, x: (x.mean() > 0 and x) or -x,
    "while": _while,
    "assert": _assert,
    "match": _match,
    "range": _counts,
    "item": lambda _, x: x * x.amax().item(),
    "tolist": lambda _, x: x * sum(x.mean((0, 2, 3, 4)).tolist()),
    "float": lambda _, x: x * float(x.std()),
    "int": lambda _, x: x[:, : int(x.sum())],
    "complex": lambda _, x: x * complex(x.sum()).real,
    "index": lambda _, x: x[:, [0, 1][x.argmin() :]],
    "round": lambda _, x: x * round(x.sum().item()),
    "numpy": lambda _, x: x * x.detach().numpy().max(),
    "array": lambda _, x: x * np.asarray(x.detach().sum()).max(),
    "in": lambda _, x: x if 0.0 in x else -x,
    "equal": lambda _, x: x if torch.equal(x, x.relu()) else -x,
    "allclose": lambda _, x: x if x.allclose(x.relu()) else -x,
    "nonzero": lambda _, x: x * x.nonzero().shape[0],
    "where": lambda _, x: x * len(torch.where(x > 0)[0]),
    "mask": lambda _, x: x * x[x > 0].mean(),
    "masked_select": lambda _, x: x * x.masked_select(x > 0).mean(),
    "unique": lambda _, x: x * torch.unique(x.round()).numel(),
    "repeat": lambda _, x: x * x.flatten().abs().long().bincount().numel(),
    "format": lambda _, x: x * len(f"{x.sum():.3f}"),
    "sorted": lambda _, x: x * sorted(x.mean((0, 2, 3, 4)))[1],
    "max of a list": lambda _, x: x * max(list(x.mean((0, 2, 3, 4)))),
    "iteration": lambda _, x: x * len([each for each in x.mean((0, 2, 3, 4)) if each > 0]),
    "address": lambda _, x: x * (x.data_ptr() % 2),
}
"""By what decides."""


class One(nn.Module):
    """Takes one volume, and does what the test wants behind a convolution."""

    def __init__(self, operation: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        self.first, self.operation = nn.Conv3d(1, 2, 3, padding=1), operation

    def forward(self, x: Tensor) -> Any:
        """Ask for extents, so that no trace keeps it."""
        return self.operation(self, self.first(x) * x.shape[2])


@pytest.mark.few_cases(4)
@pytest.mark.filterwarnings("ignore:.*whole on every rank:RuntimeWarning")
@pytest.mark.parametrize("name", KINDS)
def test_every_rank_is_told_and_nothing_is_sent(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the network is split, where the shape is known, and in the first pass of all ranks elsewhere."""
    sent: list[int] = []
    monkeypatch.setattr(LoopbackRank, "start", lambda *_: sent.append(1))
    model, x, told = One(KINDS[name]).double(), volume(), []
    ranks = range(GRID.world_size)
    for rank in ranks:
        with pytest.raises(UsageError) as caught:
            shard(model, GRID.at(rank), shape=SHAPE, exchange=Loopback(GRID).rank(rank))
        told.append(str(caught.value))
    world = World(model)

    def work(rank: int) -> None:
        with pytest.raises(UsageError) as caught:
            world.nets[rank](world.block(rank, x))
        told.append(str(caught.value))

    world.loop.run(work)
    assert not sent
    assert len(told) == 2 * len(ranks)
    for alike in (told[: len(ranks)], told[len(ranks) :]):
        assert len(set(alike)) == 1
        assert "values" in alike[0] or "shapes alone" in alike[0] or "no split form" in alike[0]
