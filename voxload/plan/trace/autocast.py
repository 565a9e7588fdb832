"""AutocastOnMeta: what torch.autocast does to types, for tensors without data, which it does not know.

The lists are those of CUDA in torch's documentation of automatic mixed precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LOWER = _names("""
    __matmul__ addbmm addmm addmv addr baddbmm bmm chain_matmul multi_dot conv1d conv2d conv3d conv_transpose1d
    conv_transpose2d conv_transpose3d gru_cell linear lstm_cell matmul mm mv prelu rnn_tanh_cell rnn_relu_cell
    scaled_dot_product_attention
""")
_FLOAT32 = _names("""
    __pow__ __rdiv__ __rpow__ __rtruediv__ acos asin binary_cross_entropy_with_logits cosh cosine_embedding_loss cdist
    cosine_similarity cross_entropy cumprod cumsum dist erfinv exp expm1 group_norm hinge_embedding_loss kl_div l1_loss
    layer_norm log log10 log_softmax log1p log2 margin_ranking_loss mse_loss multilabel_margin_loss multi_margin_loss
    nll_loss norm normalize pdist poisson_nll_loss pow prod reciprocal rsqrt sinh smooth_l1_loss soft_margin_loss
    softmax softmin softplus sum renorm tan triplet_margin_loss
""")
_WIDEST = _names("""
    addcdiv addcmul atan2 bilinear cat cross dot grid_sample index_put scatter_add stack tensordot
""")
_TYPES = (torch.float32, torch.float16, torch.bfloat16)


class AutocastOnMeta(TorchFunctionMode):
    """Casts what functions of torch take while it is entered; used by one thread.

    Parameters
    ----------
    dtype
        Of convolutions and products of matrices.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self._dtype = dtype
        self._weights: dict[int, tuple[Tensor, Tensor]] = {}
        """Casts of parameters, by the identity of these; each is made once, as torch does."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call a function with what it would be called with."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        wanted = self._wanted(name, args, kwargs)
        if wanted is not None:
            args, kwargs = tree_map(lambda leaf: self._cast(leaf, wanted), (args, kwargs))
        return func(*args, **kwargs)

    def _wanted(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.dtype | None:
        if name in _LOWER:
            return self._dtype
        if name in _FLOAT32:
            return torch.float32
        if name not in _WIDEST:
            return None
        tensors = (each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor))
        found = {each.dtype for each in tensors if each.dtype in _TYPES}
        return torch.float32 if torch.float32 in found and len(found) > 1 else None

    def _cast(self, leaf: Any, dtype: torch.dtype) -> Any:
        if not isinstance(leaf, Tensor) or leaf.dtype not in _TYPES or leaf.dtype is dtype:
            return leaf
        if dtype is torch.float32 or not (leaf.is_leaf and leaf.requires_grad):
            return leaf.to(dtype)
        if id(leaf) not in self._weights:
            self._weights[id(leaf)] = leaf, leaf.to(dtype)
        return self._weights[id(leaf)][1]
