"""XarrayName: an object of xarray's where a path is expected."""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Iterator
from typing import Any, Self

SCHEME = "xarray"
_KINDS = (
    ("xarray.core.dataset", "Dataset"),
    ("xarray.core.dataarray", "DataArray"),
    ("xarray.core.datatree", "DataTree"),
)
_TOKEN = 32
"""Letters of a digest that stand for what an object looks like."""
_lock = threading.Lock()
_objects: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
"""The objects of this process by their names, while anybody has them."""


class XarrayName(str):
    """The name of a Dataset, DataArray or DataTree; has the object with it, in other processes too.

    It is made of what the object looks like, so that ranks that open the same data agree, and of a number, where a
    process has several that look alike. Ranks have to make theirs in one order.
    """

    __slots__ = ("held",)
    held: Any

    def __new__(cls, held: Any) -> Self:
        """Return the name of an object, the same one as long as the object lives."""
        digest = hashlib.sha256("\n".join(_description(held)).encode("utf-8", "surrogatepass")).hexdigest()[:_TOKEN]
        number = 0
        with _lock:
            while True:
                text = f"{SCHEME}://{digest}" + (f"-{number}" if number else "")
                if _objects.setdefault(text, held) is held:
                    break
                number += 1
        return cls._made(text, held)

    @classmethod
    def _made(cls, text: str, held: Any) -> Self:
        made = super().__new__(cls, text)
        made.held = held
        return made

    def __reduce__(self) -> tuple[Any, tuple[str, Any]]:
        """Return it with its object, for other processes, where it is called the same."""
        return _again, (str(self), self.held)


def _again(text: str, held: Any) -> XarrayName:
    with _lock:
        _objects.setdefault(text, held)
    return XarrayName._made(text, held)  # noqa: SLF001 - its other half


def is_xarray(given: object) -> bool:
    """Tell whether something is a Dataset, a DataArray or a DataTree; xarray is not imported for it."""
    return any((kind.__module__, kind.__name__) in _KINDS for kind in type(given).__mro__)


def variables(held: Any) -> dict[str, Any]:
    """Return the data variables of an object by name; that of a DataArray is the empty one, a tree's have paths."""
    if hasattr(held, "subtree"):
        found = {}
        for node in held.subtree:
            below = node.path.strip("/")
            found.update({f"{below}/{name}" if below else str(name): one for name, one in node.data_vars.items()})
        return found
    return {str(name): one for name, one in held.data_vars.items()} if hasattr(held, "data_vars") else {"": held}


def _description(held: Any) -> Iterator[str]:
    """Return what an object looks like, without a look at its values."""
    yield type(held).__name__
    for name, one in sorted(variables(held).items()):
        yield f"{name} {one.dtype} {dict(one.sizes)} {one.encoding.get('source', '')!r}"
