"""Composite: functions of torch that are made of others, which torch hands over as one: here they are these others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

_BATCHED = 3
"""Dimensions of tokens with a batch, (L, N, E)."""
_ONE_MASK = 2
"""Dimensions of a mask for all samples and heads."""


def _attention(args: tuple[Any, ...], kwargs: dict[str, Any], block: type) -> Any:
    """Return attention with several heads; see torch.nn.functional.multi_head_attention_forward."""
    given = signature(functional.multi_head_attention_forward).bind(*args, **kwargs).arguments
    query, key, value = given["query"], given["key"], given["value"]
    masks = given.get("attn_mask"), given.get("key_padding_mask")
    unusual = ("bias_k", "bias_v", "static_k", "static_v", "add_zero_attn")
    if any(each.ndim != _BATCHED for each in (query, key, value)) or any(isinstance(each, block) for each in masks):
        return NotImplemented
    if any(given.get(name) is not None and given[name] is not False for name in unusual):
        return NotImplemented
    weights = _weights(given)
    biases = given["in_proj_bias"].chunk(3) if given.get("in_proj_bias") is not None else (None,) * 3
    heads = given["num_heads"]
    query, key, value = (
        torch.unflatten(functional.linear(each, weight, bias), -1, (heads, -1)).permute(1, 2, 0, 3)
        for each, weight, bias in zip((query, key, value), weights, biases, strict=True)
    )
    mask = _mask(*masks, heads, query)
    chance = given["dropout_p"] if given.get("training", True) else 0.0
    shares = None
    if given.get("need_weights", True) or chance:
        scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-2, -1)
        shares = functional.softmax(scores if mask is None else scores + mask, -1)
        shares = functional.dropout(shares, chance) if chance else shares
        found = shares @ value
    else:
        found = functional.scaled_dot_product_attention(query, key, value, mask)
    found = functional.linear(found.permute(2, 0, 1, 3).flatten(2), given["out_proj_weight"], given["out_proj_bias"])
    if shares is None or not given.get("need_weights", True):
        return found, None
    return found, shares.mean(1) if given.get("average_attn_weights", True) else shares


def _weights(given: Mapping[str, Any]) -> tuple[Tensor, ...]:
    """Return the weights of the projections of queries, keys and values."""
    if given.get("use_separate_proj_weight"):
        return given["q_proj_weight"], given["k_proj_weight"], given["v_proj_weight"]
    weights: tuple[Tensor, ...] = given["in_proj_weight"].chunk(3)
    return weights


def _mask(own: Tensor | None, padding: Tensor | None, heads: int, like: Tensor) -> Tensor | None:
    """Return one mask that is added to scores (N, heads, L, S); in those that are given, True is left out."""

    def added(mask: Tensor) -> Tensor:
        if mask.dtype != torch.bool:
            return mask
        return torch.zeros(mask.shape, dtype=like.dtype, device=like.device).masked_fill(mask, -torch.inf)

    found = None
    if own is not None:
        found = added(own) if own.ndim == _ONE_MASK else torch.unflatten(added(own), 0, (-1, heads))
    if padding is not None:
        columns = added(padding)[:, None, None]
        found = columns if found is None else found + columns
    return found


COMPOSITES: Mapping[Any, Callable[[tuple[Any, ...], dict[str, Any], type], Any]] = {
    functional.multi_head_attention_forward: _attention,
}
"""By functions, what gives the same by calls of which blocks hear one by one.

It is given positional and named arguments and the class of blocks; NotImplemented where it does not do what is asked.
"""
