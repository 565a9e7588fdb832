"""Attention: queries stay where they are, every rank gets the keys and values that they look at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from voxload.engine.forward.recording import Call, Given, Value
from voxload.engine.forward.rules.pointwise import under
from voxload.engine.forward.rules.windows import bound
from voxload.engine.forward.ruling import Here, NoRule, Ruling, Wishes
from voxload.engine.forward.sharding import Sharding
from voxload.engine.tensors import sent

ATTENTION: frozenset[Any] = frozenset([functional.scaled_dot_product_attention])
_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
_MATRIX = 2
"""Dimensions of a matrix."""


@dataclass(frozen=True, slots=True)
class Attend:
    """Attention of this rank's queries to all keys."""

    cut: Sharding
    """Cut of the queries."""
    mask: Sharding | None
    """Cut of which this rank takes its part of a mask that every rank has whole."""
    dtype: torch.dtype
    """Type of the result, which autocast may have chosen."""

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Here) -> Any:
        """Attend; see Action."""
        given = _given(args, kwargs)
        query, key = given["query"], given["key"]
        if self.mask is not None:
            given["attn_mask"] = self.mask.block(given["attn_mask"], here.coords)
        if given["is_causal"]:
            # Torch counts rows from the first one of the whole.
            rows = sent(torch.tensor(self.cut.positions(len(self.cut.dims) - 2, here.coords)), query.device)
            given |= {"is_causal": False, "attn_mask": rows[:, None] >= torch.arange(key.shape[-2], device=key.device)}
        if query.numel():
            return function(**given)
        # A rank without queries stays part of the graph: its peers wait for what it sends back.
        nothing = (key[..., :1, :1].sum() + given["value"].sum()) * 0
        result = query.new_zeros(*query.shape[:-1], given["value"].shape[-1]) + query.sum() + nothing
        return result.to(self.dtype)


def attend(call: Call, cuts: tuple[Sharding, ...], wishes: Wishes) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what attention does: samples, heads and queries may be cut; see Rule."""
    given, (made,) = _given(call.args, call.kwargs), call.made
    if given["dropout_p"]:
        raise NoRule("it drops out by chance, which knows nothing of blocks")
    if isinstance(given["attn_mask"], Value):
        raise NoRule("its mask depends on the volume")
    lead = len(cuts[0].dims) - _MATRIX
    cut = cuts[0].whole_along([lead + 1])
    if any(number < lead for number, *_ in cut.cuts()) and (
        given["enable_gqa"] or isinstance(given["key"], Given) or isinstance(given["value"], Given)
    ):
        raise NoRule("samples or heads are cut of the queries alone")
    inputs = [cut]
    for value in call.taken[1:]:
        # Samples and heads are those of the queries, and all keys are there.
        whole = Sharding.whole(value.shape)
        shared = (cut.dims[number] if value.shape[number] == cut.shape[number] else () for number in range(lead))
        inputs.append(Sharding((*shared, *whole.dims[lead:])))
    result = Sharding((*cut.dims[:-1], Sharding.whole(made.shape).dims[-1]))
    mask = None
    if isinstance(given["attn_mask"], Given):
        scores = Sharding((*cut.dims[:-1], *Sharding.whole(given["key"].shape[-2:-1]).dims))
        mask = under(scores, given["attn_mask"].shape)
    return Ruling(tuple(inputs), (result,), Attend(cut, None if mask is None or mask.is_whole else mask, made.dtype))


def _given(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's arguments by their names, with torch's defaults."""
    found = bound(_NAMES, args, kwargs)
    chances = {"dropout_p": found["dropout_p"] or 0.0}
    return found | chances | {name: bool(found[name]) for name in ("is_causal", "enable_gqa")}
