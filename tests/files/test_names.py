"""Names of data as names of files: none leads out, hides, or is too long."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxload.errors import InternalError
from voxload.files.names import MAX_NAME_BYTES, inside, safe_dataset, safe_name, short_name
from voxload.text import shown

CHARACTERS = st.text(st.characters(min_codepoint=0, max_codepoint=0x2FFF, exclude_categories=()))
HOSTILE = st.one_of(
    CHARACTERS,
    st.lists(st.sampled_from(["..", ".", "", "/", "\\", "a", "\0", "\x1b[2J", "\udcff", "zarr.json", "__x", "c"])).map(
        "/".join
    ),
)


@given(HOSTILE)
def test_a_safe_name_is_one_visible_segment_that_a_file_system_takes(text: str) -> None:
    """Whatever text there is, its name stays in the folder and is itself of itself."""
    for made in (safe_name, safe_dataset):
        name = made(text)
        assert inside(Path("/folder"), name).parent == Path("/folder")
        assert name.isprintable()
        assert not name.startswith(".")
        assert 1 <= len(name.encode()) <= MAX_NAME_BYTES
        assert made(name) == name


@given(st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=40))
def test_an_ordinary_name_stays(text: str) -> None:
    """Letters and digits of any language are as they were."""
    assert safe_name(text) == text


@pytest.mark.parametrize("name", ["/etc/passwd", "../a", "a/../../b", "a//b", "", ".", "a\0b", "a/."])
def test_nothing_is_made_outside_of_its_folder(name: str) -> None:
    """The second line of defence refuses what the first should have mended."""
    with pytest.raises(InternalError, match="stays in the folder"):
        inside(Path("folder"), name)


def test_long_names_that_begin_alike_stay_two() -> None:
    """A digest tells cut names apart."""
    one, other = (safe_name("ä" * 4000 + end) for end in "ab")
    assert one != other
    assert short_name("a" * 10, 10) == "a" * 10


@given(CHARACTERS)
def test_shown_text_is_printable_and_shown_once(text: str) -> None:
    """Escaping twice is escaping once."""
    found = shown(text)
    assert found.isprintable()
    assert shown(found) == found
