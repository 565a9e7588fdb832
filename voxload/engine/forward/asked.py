"""Asked: the calls of torch that a forward makes, whoever takes them, so that two runs of it can be compared."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, resolve_name

from voxload.engine.forward.trees import leaves

_OF_DEVICES: tuple[Any, ...] = (Tensor.device.__get__, torch.device)
"""What asks for a tensor's device, and what names one. Fake tensors answer by themselves, and no mode sees it.

Checkpointing names that of tensors without data, which the plain run has.
"""


class Asked(TorchFunctionMode):
    """Writes down calls of torch while it is entered: functions, shapes of tensors, and arguments that are none."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, str]] = []
        self.is_cut_short = False
        """Whether the run could not come to its end: what it did not come to is not compared."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Write one call down and carry it out."""
        if func in _OF_DEVICES:
            return func(*args, **(kwargs or {}))
        given = [_text(leaf) for leaf in leaves((args, kwargs or {}))]
        self.calls.append((str(resolve_name(func) or getattr(func, "__name__", func)), " ".join(given)))
        return func(*args, **(kwargs or {}))

    def difference(self, other: Asked) -> str:
        """Return where another run parts from this one; empty where it does not."""
        for number, (one, two) in enumerate(zip(self.calls, other.calls, strict=False), start=1):
            if one != two:
                told = one[0] if one[0] == two[0] else f"{one[0]} and not {two[0]}"
                return f"{told}, as call {number}"
        if len(self.calls) != len(other.calls) and not other.is_cut_short:
            return f"{len(self.calls)} calls and not {len(other.calls)}"
        return ""


def _text(leaf: Any) -> str:
    """Return what counts of an argument."""
    if isinstance(leaf, Tensor):
        return str(tuple(leaf.shape))
    is_plain = isinstance(leaf, bool | int | float | complex | str | type(None) | slice)
    return repr(leaf) if is_plain else type(leaf).__name__
