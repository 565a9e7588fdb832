"""Doubled: a network's forward in double precision, single precision in its own code included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from voxload.engine.forward.trees import leaves, mapped

_TYPES: Mapping[Any, torch.dtype] = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
_NAMES = {"float": "double", "half": "double", "bfloat16": "double", "cfloat": "cdouble", "chalf": "cdouble"}
_CASTS: Mapping[Any, Any] = {getattr(Tensor, one): getattr(Tensor, other) for one, other in _NAMES.items()}


def doubled(tensor: Tensor) -> Tensor:
    """Return a tensor on the host, in double precision where it has numbers with a precision."""
    return tensor.to("cpu", _TYPES.get(tensor.dtype, tensor.dtype))


class Doubled(TorchFunctionMode):
    """While it is entered, in this thread, what asks torch for single or half precision gets double precision.

    Networks normalise in single precision, or make complex numbers of it, whatever they are given; what two runs of
    them differ by would be its rounding.
    """

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Carry a call out with other types."""
        given = kwargs or {}
        if any(isinstance(leaf, torch.dtype) for leaf in leaves((args, given))):
            args, given = mapped((args, given), _type)
        return _CASTS.get(func, func)(*args, **given)


def _type(leaf: Any) -> Any:
    return _TYPES.get(leaf, leaf) if isinstance(leaf, torch.dtype) else leaf
