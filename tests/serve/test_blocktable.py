"""Block tables and the book of blocks: what a client names comes as it was, and nonsense is refused by name."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxload.data.layout import FieldLayout
from voxload.errors import DataError, UsageError
from voxload.geometry import Boundary, Box
from voxload.readers.cfpacking import Packed
from voxload.readers.protocol import ChecksumSource, Lead, Location, Missing, Window
from voxload.serve.keeping.book import BlockBook
from voxload.serve.protocol.blocktable import ServedBlock, divided, identity, line, parsed, table
from voxload.serve.protocol.bulk import lent, taken

NAMES = st.text(st.characters(exclude_characters="\0"), max_size=8)
SMALL = st.integers(0, 9)
TRIPLE = st.tuples(SMALL, SMALL, SMALL)


@st.composite
def locations(draw: st.DrawFn, *, depth: int = 1) -> Location:
    """Draw any location."""
    return Location(
        path=draw(NAMES),
        dataset=draw(NAMES),
        axes=draw(st.none() | st.sampled_from(["CDHW", "NTCDHW"])),
        shape=draw(st.none() | st.tuples(SMALL, SMALL, SMALL, SMALL)),
        dtype=draw(st.none() | st.sampled_from(["<i2", ">f4"])),
        checksums=draw(st.none() | st.builds(ChecksumSource, NAMES, NAMES, NAMES)),
        window=draw(st.none() | st.builds(Window, TRIPLE, TRIPLE)),
        lead=draw(st.none() | st.builds(Lead, st.none() | SMALL, st.none() | st.lists(SMALL).map(tuple))),
        level=draw(st.none() | SMALL),
        packed=draw(st.sampled_from(Packed)),
        also=tuple(draw(st.lists(locations(depth=depth - 1), max_size=2))) if depth else (),
        within=draw(st.none() | NAMES),
    )


@st.composite
def blocks(draw: st.DrawFn) -> ServedBlock:
    """Draw any block."""
    start = tuple(draw(st.lists(st.integers(-9, 9), min_size=3, max_size=3)))
    shape = draw(TRIPLE)
    return ServedBlock(
        draw(locations()),
        Box(start, tuple(lo + extent for lo, extent in zip(start, shape, strict=True))),
        draw(st.sampled_from(Boundary)),
        draw(st.sampled_from(Missing)),
        FieldLayout(
            tuple(1 + extent for extent in (draw(SMALL), *shape)),
            np.dtype(draw(st.sampled_from([np.int16, np.float32, np.complex64, ml_dtypes.bfloat16]))),
        ),
    )


@given(found=st.lists(blocks(), min_size=1, max_size=4))
def test_any_blocks_come_as_they_were(found: list[ServedBlock]) -> None:
    """Names that are no UTF-8 too; equal blocks, and no others, have equal lines."""
    sizes, lines = divided(table(found), len(found))
    assert [parsed(one) for one in lines] == found
    assert sizes.tolist() == [one.layout.nbytes for one in found]
    for first, other in zip(found, lines, strict=True):
        for second, another in zip(found, lines, strict=True):
            assert (first == second) == (identity(other) == identity(another))


def test_names_that_are_no_utf_8() -> None:
    """As the system gives them."""
    path = os.fsdecode(b"/data/\xff\xfe.h5")
    block = ServedBlock(
        Location(path), Box.whole((1, 1, 1)), Boundary.ZERO, Missing.ERROR, FieldLayout((1, 1, 1, 1), np.dtype(np.int8))
    )
    assert parsed(line(block)).location.path == path


GOOD: dict[str, Any] = {
    "at": {"path": "a"},
    "box": [0, 0, 0, 1, 1, 1],
    "boundary": "zero",
    "missing": "error",
    "shape": [1, 1, 1, 1],
    "dtype": "int16",
}


@pytest.mark.parametrize(
    "change",
    [
        {"at": None},
        {"at": {}},
        {"at": {"path": 1}},
        {"at": {"path": "a\0b"}},
        {"at": {"path": "a", "of a later version": 1}},
        {"at": {"path": "a", "packed": "refused"}},
        {"at": {"path": "a", "window": [1, 2]}},
        {"at": {"path": "a", "also": [{"path": None}]}},
        {"box": [0, 0, 0, 1, 1]},
        {"box": [0, 0, 0, 1, 1, 1.5]},
        {"box": [2, 0, 0, 1, 1, 1]},
        {"boundary": "open"},
        {"missing": True},
        {"shape": [1, 1, 1]},
        {"shape": [1, 1, 1, 0]},
        {"shape": [1, 1, 1, True]},
        {"dtype": "object"},
        {"dtype": "no type"},
        {"dtype": ["int16"]},
    ],
)
def test_what_is_no_block(change: dict[str, Any]) -> None:
    """Is refused; it never becomes another block."""
    parsed(json.dumps(GOOD).encode())
    with pytest.raises(DataError, match="block table: found"):
        parsed(json.dumps({**GOOD, **change}).encode())


@given(data=st.binary(max_size=200), count=st.integers(-1, 5))
def test_any_bytes_are_a_table_or_refused(data: bytes, count: int) -> None:
    """And each line a block or refused: with a DataError, and with nothing else."""
    with suppress(DataError):
        sizes, lines = divided(data, count)
        assert len(sizes) == len(lines) == count
        for one in lines:
            with suppress(DataError):
                parsed(one)


@given(data=st.data())
def test_a_book_against_a_dictionary(data: st.DataObject) -> None:
    """One number for one line as long as anybody names it; a number has one line."""
    book, names = BlockBook(6), list[list[int]]()
    known: dict[int, bytes] = {}
    for _ in range(data.draw(st.integers(1, 12))):
        if data.draw(st.booleans()):
            lines = data.draw(st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]), max_size=4))
            if len(book) + len(lines) > 6:
                with pytest.raises(UsageError, match="expected at most 6"):
                    book.name(lines)
                continue
            numbers, fresh = book.name(lines)
            assert {lines[place] for place in fresh.tolist()} == set(lines) - set(known.values())
            known.update(zip(numbers.tolist(), lines, strict=True))
            names.append(numbers.tolist())
            assert [book.line(number) for number in numbers.tolist()] == lines
        elif names:
            gone = names.pop(data.draw(st.integers(0, len(names) - 1)))
            left = book.leave(gone)
            assert set(left) == set(gone) - {one for each in names for one in each}
            for number in left:
                book.forget(number)
                book.forget(number)
                del known[number]
        assert len(book) == len(known)
        assert all(book.is_named(number) and book.line(number) == text for number, text in known.items())


def test_bulk_is_copied_and_bounded() -> None:
    """More than allowed, or no memory at all, is an error of one line."""
    descriptor = lent("test", b"abc" * 1000)
    try:
        assert taken("test", descriptor) == b"abc" * 1000
        with pytest.raises(DataError, match="test: found 3000 bytes, expected at most 2999"):
            taken("test", descriptor, most=2999)
    finally:
        os.close(descriptor)
    reading, writing = os.pipe()
    try:
        for wrong in (reading, 10**6):
            with pytest.raises(DataError, match=r"test: found .*, expected memory"):
                taken("test", wrong)
    finally:
        os.close(reading)
        os.close(writing)
