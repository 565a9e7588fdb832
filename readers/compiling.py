"""Compiling: kernels by numba, and the files on disk that keep them.

numba gives a function one index file, which names a data file for each signature, and writes both without a lock. Of
two processes that compile two signatures at the same moment, one stores its code under the other's name, and every
process after them ends with "no matching definition". Here each signature has an index of its own: whoever writes it
writes the same code. Its name tells what the code was made from, too, as numba sees changes of the file that holds the
function, but not of the parts in other files that were compiled into it.
"""

from __future__ import annotations

import hashlib
import inspect
import pickle
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

import numba
import numpy as np
from numba import types

F = TypeVar("F", bound=Callable[..., Any])
_NOT_KEPT = (RuntimeError, OSError, EOFError, pickle.UnpicklingError)
"""No folder can be written, there is no room, or a node that went down left half a file: every process compiles."""


def compiled(*arguments: Any, returns: Any = types.void) -> Callable[[F], F]:
    """Compile for these types now, or take the code from the cache on disk; safe in many processes at once."""

    def compile_(function: F) -> F:
        jit: Any = numba.njit
        signature = returns(*arguments)
        try:
            found: F = jit([signature], nogil=True, boundscheck=False, cache=True)(_named(function, signature))
        except _NOT_KEPT:
            found = jit([signature], nogil=True, boundscheck=False)(function)
        return found

    return compile_


def part(function: F) -> F:
    """Compile a function as a part of the kernels that call it."""
    jit: Any = numba.njit
    inlined: F = jit(nogil=True, boundscheck=False)(function)
    return inlined


def _named(function: Any, signature: Any) -> FunctionType:
    """Return the function under a name that no other signature and no other source has; numba names files by it."""
    digest = hashlib.sha256(str(signature).encode())
    for line in sorted(set(_origins(function, set()))):
        digest.update(line.encode())
    found = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    found.__doc__, found.__kwdefaults__ = function.__doc__, function.__kwdefaults__
    found.__qualname__ = f"{function.__qualname__}_{digest.hexdigest()[:16]}"
    return found


def _origins(function: Any, seen: set[Any]) -> Iterator[str]:
    """Yield what code is made from: files of the function and its parts, and values that are compiled as constants."""
    seen.add(function)
    yield _digest(Path(function.__code__.co_filename))
    used = inspect.getclosurevars(function)
    for name, value in (*used.globals.items(), *used.nonlocals.items()):
        module = sys.modules.get(getattr(value, "__module__", None) or "")
        called = getattr(value, "py_func", None)
        if called is not None and called not in seen:
            yield from _origins(called, seen)
        elif isinstance(value, bool | int | float | str | tuple | np.generic):
            yield f"{name} = {value!r}"
        elif module is not None and module.__name__.partition(".")[0] == function.__module__.partition(".")[0]:
            yield _digest(Path(str(module.__file__)))


@cache
def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
