"""Values over a wire: what is sent is what is understood, and whatever else comes is an error and nothing more."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxload.errors import DataError
from voxload.launch import wire
from voxload.launch.wire import decode, encode
from voxload.prefetch.line import Ints


@dataclass(frozen=True)
class _Part:
    name: str
    sizes: tuple[int, ...]
    share: float = 0.0


@dataclass(frozen=True)
class _Whole:
    token: bytes
    parts: tuple[_Part, ...]
    found: Ints
    by_name: Mapping[str, _Part | None] = field(default_factory=dict)


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def test_values_survive() -> None:
    """Dataclasses in dataclasses, tuples, bytes, arrays, choices and numbers that are none."""
    part = _Part("é", (1, 2), math.inf)
    whole = _Whole(bytes(range(256)), (part, part), np.array([[-(2**63), 0, 2**63 - 1]] * 2), {"a": part, "b": None})
    found = decode(encode(whole), _Whole)
    assert (found.token, found.parts, found.by_name) == (whole.token, whole.parts, whole.by_name)
    assert found.found.dtype == np.int64
    np.testing.assert_array_equal(found.found, whole.found)
    assert math.isnan(decode(encode(float("nan")), float))
    kind: Any = tuple[int, str] | None
    assert [decode(encode(one), kind) for one in (None, (1, "x"))] == [None, (1, "x")]
    assert encode(np.float64(0.5)) == b"0.5"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("1", bool),
        ("true", int),
        ("1.5", int),
        ('"1"', float),
        ("[1, 2]", tuple[int, int, int]),
        ("[1, null]", list[int]),
        ('{"1": 2}', list[int]),
        ('"not base64!"', bytes),
        ("[1]", Ints),
        ('{"shape": [2], "int64": "AAAAAAAAAAA="}', Ints),
        ('{"shape": [-1, -1], "int64": "AAAAAAAAAAA="}', Ints),
        ('{"shape": [1.0], "int64": "AAAAAAAAAAA="}', Ints),
        ('{"shape": [1], "int64": [0]}', Ints),
        ('{"shape": [1]}', Ints),
        ('{"name": "x", "sizes": []}', _Part),
        ('{"name": "x", "sizes": [], "share": 0, "more": 1}', _Part),
        ('{"name": "x", "sizes": [1, "2"], "share": 0}', _Part),
        ("NULL", type(None)),
        ("[" * 100_000, list[Any]),
        ("9" * 10_000, int),
    ],
)
def test_another_shape_is_refused(text: str, kind: Any) -> None:
    """A value of another type, a field too many or too few, or no JSON."""
    with pytest.raises(DataError, match="message: found"):
        decode(text.encode(), kind)


@given(JSON)
def test_anything_is_what_was_asked_for_or_an_error(value: Any) -> None:
    """No other exception comes out."""
    for kind in (_Whole, _Part, bytes, tuple[int, ...], Mapping[str, float] | None):
        with suppress(DataError):
            decode(json.dumps(value).encode(), kind)  # type: ignore[arg-type] # mypy knows no unions as types


def test_a_pickle_and_a_flood_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is parsed."""
    with pytest.raises(DataError):
        decode(pickle.dumps({"a": 1}), dict[str, int])
    monkeypatch.setattr(wire, "LONGEST", 10)
    with pytest.raises(DataError, match="found 12 bytes, expected at most 10"):
        decode(b'"0123456789"', str)


def test_what_is_not_sent() -> None:
    """Objects of any other kind are a mistake of ours, told where they are sent."""
    for value in (object(), {1, 2}, np.zeros(2, np.int32), _Part):
        with pytest.raises(TypeError, match="is not sent"):
            encode(value)
