"""The columns spacing and affine: what is refused in them, and what keeps them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.catalog.tables import lines, rows, table, written
from voxload.catalog import Rows, filter_rows, parse
from voxload.catalog.merge import merge
from voxload.catalog.split import split
from voxload.catalog.table import Catalog, Entry
from voxload.errors import DataError, UsageError

FINE, COARSE = [1.0, 0.5, 0.5], [5.0, 0.5, 0.5]
AFFINE = [1.0, 0, 0, -7, 0, 0.5, 0, 3, 0, 0, 0.5, 0.1, 0, 0, 0, 1]
PLACED: dict[str, Any] = {
    "spacing": pa.array([FINE, COARSE, None], pa.list_(pa.float64())),
    "affine": pa.array([AFFINE, None, None], pa.list_(pa.float64())),
}


def test_an_entry_comes_back(tmp_path: Path) -> None:
    """Written and read, bit for bit, as tuples; null where nothing is known."""
    known = Entry("a", "a.zarr", "x", (2, 2, 2), "<i2", "DHW", 1, spacing=(0.1, 1 / 3, 2.0), affine=tuple(AFFINE))
    unknown = Entry("b", "b.zarr", "x", (2, 2, 2), "<i2", "DHW", 1)
    Catalog.from_entries([known, unknown], tmp_path).write(tmp_path / "c.parquet")
    again = Catalog.read(tmp_path / "c.parquet")
    assert again.entry("a", "x") == known
    assert again.entry("b", "x") == unknown
    assert again.target_names == ()


def test_catalogues_without_them(tmp_path: Path) -> None:
    """Any tool may leave them out."""
    entry = Catalog.read(written(tmp_path / "c.parquet", ["a"])).entry("a", "full")
    assert (entry.spacing, entry.affine) == (None, None)


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.int32(), 3)])
def test_lists_of_other_types(kind: pa.DataType) -> None:
    """Of floats, integers, of a fixed length: they are taken as ours."""
    found = Catalog(table(["a", "b"], spacing=pa.array([[3, 1, 2], None], kind)), Path())
    assert found.entry("a", "full").spacing == (3.0, 1.0, 2.0)
    assert found.entry("b", "full").spacing is None


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("spacing", [1.0, 1.0], "none of 3 numbers"),
        ("spacing", [], "none of 3 numbers"),
        ("spacing", [1.0, 1.0, 0.0], "3 finite numbers above 0"),
        ("spacing", [1.0, float("nan"), 1.0], "none of 3 numbers"),
        ("spacing", [1.0, None, 1.0], "a null in column 'spacing'"),
        ("spacing", 1.0, "column 'spacing' of type double"),
        ("affine", AFFINE[:12], "none of 16 numbers"),
        ("affine", [*AFFINE[:15], float("inf")], "expected 16 finite numbers, or a null"),
    ],
)
def test_what_is_no_place_is_refused(name: str, value: Any, words: str) -> None:
    """A list of another length, a number that is none; never the rows beside it."""
    columns = {name: pa.array([value, None] if isinstance(value, list) else [value, value])}
    with pytest.raises(DataError, match=words):
        Catalog(table(["a", "b"], **columns), Path())


def test_operations_keep_them(tmp_path: Path) -> None:
    """Merge with a catalogue that has none, split and filter; conditions may name them."""
    (tmp_path / "one").mkdir()
    one = rows(["a", "b", "c"], tmp_path / "one", **PLACED)
    other = rows(["d"], tmp_path / "other")
    merged = merge([one, other], tmp_path)
    assert [line["spacing"] for line in lines(merged)] == [FINE, COARSE, None, None]
    assert [line["affine"] for line in lines(merged)] == [AFFINE, None, None, None]
    parts = split(merged, {"train": 0.5, "test": 0.5})
    found = {line["sample"]: line["spacing"] for part in parts.values() for line in lines(part)}
    assert found == {"a": FINE, "b": COARSE, "c": None, "d": None}

    def left(condition: str) -> list[str]:
        return filter_rows(merged, where=parse(condition)).samples

    assert left("spacing != null") == ["a", "b"]
    assert left("affine == null") == ["b", "c", "d"]
    assert left("spacing == [5, 0.5, 0.5]") == ["b"]
    assert left("spacing[0] <= 3") == ["a"]
    assert left("not spacing[0] <= 3") == ["b"]
    assert left("spacing[0] > spacing[1] and affine[3] == -7") == ["a"]
    assert left("spacing[3] == null and spacing[0] in [1, 5.0]") == ["a", "b"]
    assert isinstance(merged, Rows)


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("spacing[-1] > 1", "a place in a list, counted from 0"),
        ("spacing[1.5] > 1", "a place in a list, counted from 0"),
        ("spacing[9999999999] > 1", "a place in a list, counted from 0"),
        ("spacing[0 > 1", "found '>', expected ]"),
        ("sample[0] == 'a'", "no list but of type string"),
        ("spacing[0] == 'a'", "expected a number"),
    ],
)
def test_places_that_are_none(condition: str, words: str) -> None:
    """What is no place in a list is named with its character."""
    with pytest.raises(UsageError, match=words):
        filter_rows(rows(["a", "b", "c"], **PLACED), where=parse(condition))
