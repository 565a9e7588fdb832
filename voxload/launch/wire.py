"""Wire format: values as JSON, and back as exactly what is expected of them.

What comes over a wire is text of a stranger until it was looked at: it is parsed, never run, and each value is compared
with the type that its taker names, down to the fields of dataclasses. A value of another shape is an error.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import types
from collections.abc import Mapping
from math import prod
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from voxload.errors import DataError

T = TypeVar("T")

LONGEST = 2**26
"""Bytes of one value as text, at most: an epoch of hundreds of thousands of steps takes less."""
_SHOWN = 60
"""Letters of a wrong value that an error repeats."""


def encode(value: object) -> bytes:
    """Return a value as JSON: plain values, bytes, dataclasses, mappings with keys of text, and arrays of int64.

    Raises
    ------
    TypeError
        When there is something else in it.
    """
    return json.dumps(value, default=_plain, separators=(",", ":")).encode()


def decode(data: bytes, kind: type[T]) -> T:
    """Return the value that `encode` wrote.

    Parameters
    ----------
    data
        What came.
    kind
        The type that it must have: a plain one, ``Any`` for whatever JSON holds, a dataclass, a list, a tuple, a
        mapping with keys of text, an int64 array, or a choice of these. Tuples and lists of JSON are not told apart.

    Raises
    ------
    DataError
        When it is longer than `LONGEST`, no JSON, or of any other shape.
    """
    if len(data) > LONGEST:
        raise DataError("message", found=f"{len(data)} bytes", expected=f"at most {LONGEST}")
    try:
        found: T = _typed(json.loads(data), kind)
    except (ValueError, RecursionError) as error:  # a wrong value, no JSON, or text that is no UTF-8
        raise DataError("message", found=str(error)[:200], expected=f"JSON of {_named(kind)}") from error
    return found


def _plain(value: Any) -> Any:
    """Return what JSON has in the place of a value that it does not know."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, np.ndarray) and value.dtype == np.int64:
        return {"shape": value.shape, "int64": value.astype("<i8").tobytes()}
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not sent")


def _typed(value: Any, kind: Any) -> Any:
    """Return a value of JSON as one of `kind`; raises ValueError where it is none."""
    if kind is Any:
        return value
    if kind is None or kind is types.NoneType:
        return value if value is None else _refuse(value, kind)
    if kind is bytes:
        return base64.b64decode(_checked(value, str), validate=True)
    if kind is float:
        return value if type(value) is float else float(_checked(value, int))
    if kind in {bool, int, str}:
        return _checked(value, kind)
    if dataclasses.is_dataclass(kind):
        return _dataclass(_checked(value, dict), kind)
    return _composed(value, get_origin(kind), get_args(kind))


def _composed(value: Any, origin: Any, parts: tuple[Any, ...]) -> Any:
    """Return a value as one of a kind that others make up."""
    if origin in {Union, types.UnionType}:
        return _chosen(value, parts)
    if origin is tuple:
        return _tuple(_checked(value, list), parts)
    if origin is list:
        return [_typed(each, parts[0]) for each in _checked(value, list)]
    if origin is np.ndarray:
        return _array(_checked(value, dict))
    if isinstance(origin, type) and issubclass(origin, Mapping) and parts[0] is str:
        return {name: _typed(each, parts[1]) for name, each in _checked(value, dict).items()}
    raise TypeError(f"{origin} of {parts} is not received")


def _checked(value: Any, kind: type) -> Any:
    return value if type(value) is kind else _refuse(value, kind)  # a bool is an int to isinstance


def _chosen(value: Any, kinds: tuple[Any, ...]) -> Any:
    """Return a value as the first of the kinds that it is one of."""
    for kind in kinds:
        try:
            return _typed(value, kind)
        except ValueError:
            continue
    return _refuse(value, Union[kinds])  # noqa: UP007 - made of a tuple


def _tuple(values: list[Any], kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(_typed(each, kinds[0]) for each in values)
    if len(values) != len(kinds):
        raise ValueError(f"{len(values)} values instead of {len(kinds)}")
    return tuple(_typed(each, kind) for each, kind in zip(values, kinds, strict=True))


def _array(values: dict[str, Any]) -> Any:
    if values.keys() != {"shape", "int64"}:
        raise ValueError("something else in the place of an array")
    shape, data = _typed(values["shape"], tuple[int, ...]), _typed(values["int64"], bytes)
    if min(shape, default=0) < 0 or prod(shape) * 8 != len(data):
        raise ValueError(f"{len(data)} bytes in the place of an array of shape {shape}"[:_SHOWN])
    return np.frombuffer(data, "<i8").astype(np.int64).reshape(shape)


def _dataclass(values: dict[str, Any], kind: Any) -> Any:
    """Return a dataclass from its fields, all of them and no other; its own checks run too."""
    hints = get_type_hints(kind)
    names = {each.name for each in dataclasses.fields(kind)}
    if values.keys() != names:
        odd = sorted(values.keys() ^ names)[:3]
        raise ValueError(f"{kind.__name__} with fields missing or beyond: {', '.join(odd)[:_SHOWN]}")
    return kind(**{name: _typed(values[name], hints[name]) for name in names})


def _refuse(value: Any, kind: Any) -> Any:
    raise ValueError(f"{repr(value)[:_SHOWN]} instead of {_named(kind)}")


def _named(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
