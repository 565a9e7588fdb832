"""Compiling: kernels by numba, and the files on disk that keep them.

numba gives a function one index file, which names a data file for each signature, and writes both without a lock. Of
two processes that compile two signatures at the same moment, one stores its code under the other's name, and every
process after them ends with "no matching definition". Here each signature has an index of its own: whoever writes it
writes the same code. Its name tells what the code was made from, too, as numba sees changes of the file that holds the
function, but not of the parts in other files that were compiled into it.

Those files are pickles and machine code: whoever can write them runs code here. Beside the source they are as safe as
the source is. Elsewhere (in the user's own cache, or where NUMBA_CACHE_DIR says) they are used only where nobody else
can put any.
"""

from __future__ import annotations

import grp
import hashlib
import inspect
import os
import pickle
import pwd
import stat
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba import types

F = TypeVar("F", bound=Callable[..., Any])
_NOT_KEPT = (RuntimeError, OSError, EOFError, pickle.UnpicklingError)
"""No folder can be written, there is no room, or a node that went down left half a file: every process compiles."""

_OVERFLOW = 65534
"""Linux's overflow uid; /proc/sys/kernel/overflowuid."""


def compiled(*arguments: Any, returns: Any = types.void) -> Callable[[F], F]:
    """Compile for these types now, or take the code from the cache on disk; safe in many processes at once."""

    def compile_(function: F) -> F:
        jit: Any = numba.njit
        signature = returns(*arguments)
        named = _named(function, signature)
        try:
            found: Any = jit(nogil=True, boundscheck=False)(named)
            found.enable_caching()
            if _is_safe(Path(found.stats.cache_path), Path(function.__code__.co_filename)):
                found.compile(signature)
                found.disable_compile()
                return cast("F", found)
        except _NOT_KEPT:
            pass
        return cast("F", jit([signature], nogil=True, boundscheck=False)(function))

    return compile_


def part(function: F) -> F:
    """Compile a function as a part of the kernels that call it."""
    jit: Any = numba.njit
    inlined: F = jit(nogil=True, boundscheck=False)(function)
    return inlined


def _is_safe(folder: Path, source: Path) -> bool:
    """Tell whether what lies in a folder is this user's own, or as good as the source itself; warns where it is not."""
    if folder == source.parent / "__pycache__":
        return True
    culprit = _open_to_others(folder)
    if culprit is None:
        return True
    _warn(culprit)
    return False


def _open_to_others(folder: Path) -> Path | None:
    """Return what others can change of a path to kernels: the folder, or one above it; None for nothing."""
    mine = {0, os.geteuid()}
    for place in (folder, *folder.parents):
        found = place.stat()
        shared = found.st_mode & (stat.S_IWOTH if _is_private_group(found.st_gid) else stat.S_IWOTH | stat.S_IWGRP)
        # In a folder such as /tmp others can make files, and not touch those that they do not own.
        is_held = place != folder and bool(found.st_mode & stat.S_ISVTX)
        # Owners that a container does not know, such as the host's root, are shown as one who owns nothing.
        is_ours = found.st_uid in mine or (place != folder and found.st_uid == _OVERFLOW)
        if not is_ours or (shared and not is_held):
            return place
    return None


@cache
def _is_private_group(group: int) -> bool:
    """Tell whether a group is the one that many systems make for each user, or root's."""
    try:
        return group == 0 or grp.getgrgid(group).gr_name == pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return False


@cache
def _warn(place: Path) -> None:
    warnings.warn(
        f"compiled kernels are not kept: others can write into {place}, and would run code here; let NUMBA_CACHE_DIR "
        "name a folder that only you can write",
        RuntimeWarning,
        stacklevel=5,
    )


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
