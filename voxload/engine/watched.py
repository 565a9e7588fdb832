"""Watching custom autograd functions, whose ``apply`` torch offers no other way to see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

Apply = Callable[..., Any]


@contextmanager
def functions_watched(called: Callable[[Apply, type, tuple[Any, ...], dict[str, Any]], Any]) -> Iterator[None]:
    """Hand every call of a custom autograd function to ``called(apply, function, args, kwargs)`` meanwhile.

    Not thread-safe: a method of torch's class is replaced.
    """
    original = torch.autograd.Function.__dict__["apply"]

    def apply(cls: type[torch.autograd.Function], *args: Any, **kwargs: Any) -> Any:
        return called(original.__get__(None, cls), cls, args, kwargs)

    torch.autograd.Function.apply = classmethod(apply)  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        torch.autograd.Function.apply = original  # type: ignore[method-assign]
