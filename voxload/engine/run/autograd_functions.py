"""Custom autograd functions: watched as they are applied, which torch offers no other way to see."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import RLock
from typing import Any

import torch

Apply = Callable[..., Any]
Called = Callable[[Apply, type, tuple[Any, ...], dict[str, Any]], Any]
_TORCHS = torch.autograd.Function.__dict__["apply"]


@dataclass(frozen=True, slots=True)
class Applied:
    """The ``apply`` of a custom autograd function, watched by nobody; equal for equal functions."""

    function: type

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Apply it."""
        return _TORCHS.__get__(None, self.function)(*args, **kwargs)


def applied(function: type[torch.autograd.Function], *args: Any) -> Any:
    """Apply a custom function of the engine's own, all of whose arguments are given, and which nobody watches.

    Torch's ``apply`` binds arguments to names first, which takes the host as long as the copies of a small block.
    """
    if torch._C._are_functorch_transforms_active():  # noqa: SLF001 - as torch's own asks
        return function.apply(*args)  # type: ignore[no-untyped-call] # torch leaves it untyped
    return super(torch.autograd.Function, function).apply(*args)  # type: ignore[misc] # as torch's own goes on


@contextmanager
def functions_watched(called: Called) -> Iterator[None]:
    """Hand every call of a custom autograd function to ``called(apply, function, args, kwargs)`` meanwhile.

    Not thread-safe: a method of torch's class is replaced.
    """
    original = _replaced(called)
    try:
        yield
    finally:
        torch.autograd.Function.apply = original  # type: ignore[method-assign]


class Watch:
    """Watches as long as any of its owners lives; for all threads, with one watcher.

    Parameters
    ----------
    called
        As `functions_watched` takes it.
    """

    def __init__(self, called: Called) -> None:
        self._called = called
        self._lock = RLock()  # an owner may end while another one begins, in one thread
        self._owners = 0
        self._original: Any = None

    def hold(self, owner: object) -> None:
        """Watch until `owner` is gone; thread-safe."""
        with self._lock:
            self._owners += 1
            if self._owners == 1:
                self._original = _replaced(self._called)
        weakref.finalize(owner, self._release).atexit = False

    def _release(self) -> None:
        with self._lock:
            self._owners -= 1
            if self._owners == 0:
                torch.autograd.Function.apply = self._original  # type: ignore[method-assign]


def _replaced(called: Called) -> Any:
    """Put a watcher into the place of ``apply``, and return what was there."""
    original = torch.autograd.Function.__dict__["apply"]

    def apply(cls: type[torch.autograd.Function], *args: Any, **kwargs: Any) -> Any:
        return called(original.__get__(None, cls), cls, args, kwargs)

    torch.autograd.Function.apply = classmethod(apply)  # type: ignore[assignment, method-assign]
    return original
