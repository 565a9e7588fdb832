"""Messages: what was released stays as it is, what is not known is left out, and what is wrong is refused by name."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxload.errors import DataError
from voxload.serve.protocol.messages import OF_CLIENTS, OF_SERVICE, VERSIONS, Hello, Message, Renew, agreed, description
from voxload.serve.protocol.wire import decoded, encoded

ALL = (*OF_CLIENTS, *OF_SERVICE)
RELEASED = sorted((Path(__file__).parent / "protocol").glob("*.json"))
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(),
    int: st.integers(-(2**53), 2**53),
    float: st.floats(0, 1e9),
    tuple[str, ...]: st.lists(st.text(), max_size=3).map(tuple),
}


def test_the_last_version_is_what_its_file_says() -> None:
    """Whoever changes a message writes another version, or a field that may be left out."""
    assert [int(path.stem) for path in RELEASED] == list(range(1, VERSIONS[1] + 1))
    assert json.loads(RELEASED[-1].read_text()) == description()


@given(data=st.data())
def test_any_message_comes_as_it_was(data: st.DataObject) -> None:
    """By way of JSON."""
    kind = data.draw(st.sampled_from(ALL))
    hints = get_type_hints(kind)
    message: Message = kind(**{one.name: data.draw(VALUES[hints[one.name]]) for one in fields(kind)})
    words = json.loads(json.dumps(encoded(message)))
    assert decoded(words, ALL) == message
    assert decoded({**words, "of a later version": [1, {"a": 2}]}, ALL) == message


@given(
    words=st.dictionaries(
        st.sampled_from(["kind", "first", "last", "build", "boot", "session", "generation", "features", "x"]),
        st.sampled_from(["hello", "renew", "bye"])
        | st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text()
        | st.lists(st.integers() | st.text(), max_size=3)
        | st.dictionaries(st.text(), st.integers(), max_size=2),
    )
)
def test_any_words_are_a_message_or_refused(words: dict[str, Any]) -> None:
    """With a DataError, and with nothing else."""
    try:
        message = decoded(words, OF_CLIENTS)
    except DataError:
        return
    assert all(getattr(message, one.name) is not None for one in fields(message))


HELLO: dict[str, Any] = {"kind": "hello", "first": 1, "last": 1, "build": "0.1"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"kind": "welcome"},
            "message: found 'welcome', expected one of ['hello', 'renew', 'bye', 'blocks', 'order', ",
        ),
        ({"kind": ["hello"]}, "message: found ['hello'], expected one of"),
        ({"first": None}, "hello.first: found None, expected integer"),
        ({"first": True}, "hello.first: found True, expected integer"),
        ({"first": 1.5}, "hello.first: found 1.5, expected integer"),
        ({"first": 10**300}, "hello.first: found 1000"),
        ({"build": 7}, "hello.build: found 7, expected text"),
        ({"features": "abc"}, "hello.features: found 'abc', expected texts"),
        ({"features": ["a", 1]}, "hello.features: found ['a', 1], expected texts"),
    ],
)
def test_refusals_name_the_field(change: dict[str, Any], words: str) -> None:
    """And what was expected there."""
    with pytest.raises(DataError, match=re.escape(words)):
        decoded({**HELLO, **change}, OF_CLIENTS)


def test_what_is_needed_and_what_is_not() -> None:
    """A field without a default has to be there."""
    assert decoded(HELLO, OF_CLIENTS) == Hello(1, 1, "0.1")
    with pytest.raises(DataError, match=re.escape("renew.session: found nothing, expected integer")):
        decoded({"kind": "renew", "boot": "x"}, OF_CLIENTS)
    assert isinstance(decoded({"kind": "renew", "boot": "", "session": 1, "generation": 1}, OF_CLIENTS), Renew)


@pytest.mark.parametrize(
    ("first", "last", "ours", "expected"),
    [
        (1, 1, (1, 1), 1),
        (1, 3, (1, 2), 2),
        (2, 2, (1, 4), 2),
        (3, 5, (1, 2), None),
        (1, 2, (3, 4), None),
        (2, 1, (1, 4), None),
    ],
)
def test_both_speak_the_last_version_that_they_share(
    first: int, last: int, ours: tuple[int, int], expected: int | None
) -> None:
    """Or none."""
    assert agreed(first, last, ours) == expected
