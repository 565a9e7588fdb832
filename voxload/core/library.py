"""Library: the functions of the core, by name.

They are plain C behind ``ctypes``: a call lets go of the interpreter's lock, on any Python, and needs none of Python's
headers to build. Addresses are unchecked: what calls a function checks extents first and keeps the memory alive.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from voxload.errors import InternalError


class _Read:
    """A parameter that takes a contiguous array."""

    @classmethod
    def from_param(cls, array: Any) -> ctypes.c_void_p:
        """Return where its memory begins."""
        if not (isinstance(array, np.ndarray) and array.flags.c_contiguous):
            raise TypeError("the core takes contiguous arrays")
        return ctypes.c_void_p(array.__array_interface__["data"][0])


class _Write(_Read):
    """A parameter that takes a contiguous array which is written."""

    @classmethod
    def from_param(cls, array: Any) -> ctypes.c_void_p:
        """Return where its memory begins."""
        if not (isinstance(array, np.ndarray) and array.flags.writeable):
            raise TypeError("the core writes into writeable arrays")
        return super().from_param(array)


_TYPES: dict[str, Any] = {
    "r": _Read,
    "w": _Write,
    "p": ctypes.c_void_p,
    "n": ctypes.c_uint64,
    "i": ctypes.c_int64,
    "d": ctypes.c_double,
    "b": ctypes.c_bool,
    "o": ctypes.py_object,
}


def _found() -> str:
    folder = Path(__file__).parent
    found = sorted(folder.glob("_core*.so"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise InternalError("voxload's compiled core", found=names, expected="one", remedy="install voxload again")
    return str(found[0])


_path = _found()
_library = ctypes.CDLL(_path)
_locked = ctypes.PyDLL(_path)


def function(name: str, parameters: str, returns: str = "", *, keeps_lock: bool = False) -> Callable[..., Any]:
    """Return a function of the core; safe to call from many threads at once where its source says nothing else.

    Parameters
    ----------
    name
        Its name in C.
    parameters
        A letter each: "r" for a contiguous array that is read, "w" for one that is written, "p" for an address as an
        int, "n" for a ``uint64_t``, "i" for an ``int64_t``, "d" for a ``double``, "b" for a ``bool``, "o" for any
        object, which is not looked at.
    returns
        The same for what it returns; nothing where empty.
    keeps_lock
        Whether a call keeps the interpreter's lock, which others would take in its stead.

    Raises
    ------
    AttributeError
        When the core has no such function: it was built from other sources.
    """
    # A new object each time; the library's attribute would be one for all that declare it.
    made: Any = (_locked if keeps_lock else _library)[name]
    made.argtypes = [_TYPES[letter] for letter in parameters]
    made.restype = _TYPES[returns] if returns else None
    return made  # type: ignore[no-any-return]


# First of all that a forked child does: whoever forgets more in there may find the core's locks held for good.
os.register_at_fork(after_in_child=function("forget_parent", ""))
