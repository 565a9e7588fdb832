"""Compiling: kernels by numba, and the files on disk that keep them.

numba gives a function one index file, which names a data file for each signature, and writes both without a lock. Of
two processes that compile two signatures at the same moment, one stores its code under the other's name, and every
process after them ends with "no matching definition". Here each signature has an index of its own: whoever writes it
writes the same code. Its name tells what the code was made from, too, as numba sees changes of the file that holds the
function, but not of the parts in other files that were compiled into it.

What is kept is code, and runs: `KeptCode` says whose.
"""

from __future__ import annotations

import hashlib
import inspect
import pickle
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

import numba
import numpy as np
from numba import types

from voxload.private import ForeignError
from voxload.readers.keptcode import KeptCode
from voxload.text import shown

F = TypeVar("F", bound=Callable[..., Any])
_NOT_KEPT = (RuntimeError, OSError, EOFError, pickle.UnpicklingError)
"""No folder can be written, there is no room, or a node that went down left half a file: every process compiles."""


def compiled(*arguments: Any, returns: Any = types.void) -> Callable[[F], F]:
    """Compile for these types now, or take the code from the cache on disk; safe in many processes at once."""

    def compile_(function: F) -> F:
        jit: Any = numba.njit
        signature = returns(*arguments)
        try:
            found: F = _kept(_named(function, signature), signature)
        except _NOT_KEPT as error:
            if isinstance(error, ForeignError):
                _tell_once(str(error))
            found = jit([signature], nogil=True, boundscheck=False)(function)
        return found

    return compile_


def _kept(named: FunctionType, signature: Any) -> Any:
    """Return the code from the cache on disk, where nobody else can have put it, or compile it and keep it there."""
    jit: Any = numba.njit
    found = jit(nogil=True, boundscheck=False, cache=True)(named)
    source = Path(named.__code__.co_filename)
    prefix = f"{source.stem}.{named.__qualname__}".replace("<", "").replace(">", "")  # as numba names files
    with KeptCode(Path(found.stats.cache_path), source, prefix) as code:
        # numba takes no descriptor: the path of its two files is set where it keeps that.
        files = found._cache._cache_file  # noqa: SLF001 - as above
        files._cache_path, files._index_path = code.path, f"{code.path}/{files._index_name}"  # noqa: SLF001 - as above
        found.compile(signature)
        code.seal()
    found.disable_compile()
    return found


@cache
def _tell_once(reason: str) -> None:
    what = f"{reason}; every process compiles for itself, which takes seconds"
    warnings.warn(shown(what), RuntimeWarning, stacklevel=4)


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
