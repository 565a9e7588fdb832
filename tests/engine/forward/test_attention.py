"""Attention over cut tokens: by torch's layers, in all that they can be asked for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.engine.forward.onblocks_world import GRID, SHAPE, World, volume
from voxload.engine import Blocks, check
from voxload.engine.forward.plan_cache import PlanCache, SplitOptions


class Tokens(nn.Module):
    """Attention by torch's layer, with what it can be asked for."""

    def __init__(self, *, weights: bool = False, masks: bool = False, kdim: int | None = None) -> None:
        super().__init__()
        self.embed, self.weights, self.masks = nn.Conv3d(1, 8, 2, 2), weights, masks
        self.layer = nn.MultiheadAttention(8, 2, kdim=kdim, vdim=kdim, batch_first=True)

    def forward(self, x: Tensor) -> Any:
        """Return tokens, and what they look at where that is asked for."""
        tokens = self.embed(x).flatten(2).transpose(1, 2)
        count = tokens.shape[1]
        mask = torch.ones(count, count, dtype=torch.bool, device=x.device).triu(9) if self.masks else None
        padding = torch.arange(count, device=x.device).expand(2, -1) > count - 3 if self.masks else None
        return self.layer(tokens, tokens, tokens, attn_mask=mask, key_padding_mask=padding, need_weights=self.weights)


@pytest.mark.few_cases(2)
@pytest.mark.filterwarnings("ignore:.*whole on every rank:RuntimeWarning")
@pytest.mark.parametrize(
    ("build", "gathered"),
    [
        (Tokens, {"scaled_dot_product_attention"}),
        (lambda: Tokens(weights=True), {"matmul"}),
        (lambda: Tokens(weights=True, masks=True), {"matmul"}),
        (lambda: Tokens(masks=True, kdim=8), {"scaled_dot_product_attention"}),
    ],
    ids=["plain", "weights", "masks and weights", "weights of their own"],
)
def test_attention_with_several_heads_keeps_its_queries_where_they_are(build: Any, gathered: set[str]) -> None:
    """Only keys and values are made whole."""
    model = build()
    found = check(model, SHAPE, GRID, min_width=0)
    assert found.is_equal, str(found)
    plans = PlanCache(model, SplitOptions(GRID, Blocks.of(GRID, SHAPE), 0))
    planned = plans.ahead(model, SHAPE)
    assert planned is not None
    assert {each.call.function.__name__ for each in planned.plan.fallbacks} == gathered


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*whole on every rank:RuntimeWarning")
def test_a_transformer_runs_without_gradients() -> None:
    """Torch has a fast path for that, which is for tensors of its own class alone."""

    class Layered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Conv3d(1, 8, 1)
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

        def forward(self, x: Tensor) -> Any:
            y = self.embed(x)
            return self.layer(y.flatten(2).transpose(1, 2)).transpose(1, 2).reshape(y.shape)

    world = World(Layered().eval(), shape=SHAPE)
    x = volume()
    with torch.no_grad():
        wanted = world.whole(x)
        assert world.equals(world.run(x), wanted)
