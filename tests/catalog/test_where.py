"""where: conditions hold for the rows that they say, and what is none points at the place."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.catalog.tables import rows
from voxload.catalog import filter_rows, parse
from voxload.catalog.columns import SUMMARY_TYPE
from voxload.errors import NotFoundError, UsageError

_SPACED: dict[str, Any] = {"h 0": [0.5, 0.6, 0.7, 0.8]}
ROWS = rows(
    ["a", "b", "c", 'quo"te'],
    universe=["u1", None, "u1", "u2"],
    shape=[[4, 8, 8, 8], [1, 8, 8, 8], [4, 8, 8, 8], [4, 8, 8, 4]],
    omega_m=[0.25, 0.3, None, float("nan")],
    seed=pa.array([1, -2, 3, 4], pa.int16()),
    good=[True, False, None, True],
    day=pa.array([dt.date(2024, 1, number) for number in (1, 2, 3, 4)]),
    statistics=pa.array([{"count": 5, "nan_count": 0}, {"count": 5, "nan_count": 1}, None, {"count": 5}], SUMMARY_TYPE),
    **_SPACED,
)


def _ids(expression: str) -> str:
    """Return the first letters of the samples for which it holds."""
    return "".join(sample[0] for sample in filter_rows(ROWS, where=parse(expression)).samples)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('sample == "a"', "a"),
        ("sample != 'a'", "bcq"),
        (r'sample == "quo\"te"', "q"),
        ("sample < 'c'", "ab"),
        ("omega_m > 0.26", "b"),
        ("0.26 < omega_m", "b"),
        ("omega_m <= .3 AND NOT omega_m == 3e-1", "a"),
        ("omega_m == null", "c"),
        ("omega_m != null", "abq"),
        ("not omega_m > 0.26", "aq"),  # NaN is not greater; of what is missing nothing is known
        ("seed >= -2 and seed < +3", "ab"),
        ("seed > 1.5", "cq"),
        ("stored_bytes >= 1002", "cq"),
        ('universe == "u1" or universe == ""', "abc"),
        ("good == true", "aq"),
        ("not good == true", "b"),
        ("good == true or seed == 3", "acq"),
        ("`h 0` > 0.65", "cq"),
        ("`h 0` > omega_m", "ab"),
        ("shape == [4, 8,8 , 8]", "ac"),
        ("shape != [4,8,8,8]", "bq"),
        ("window == null", "abcq"),
        ("statistics.nan_count == 0", "a"),
        ("statistics.nan_count == null", "cq"),
        ("statistics.count == 5 and not statistics.nan_count == 0", "b"),
        ('sample in ["a", "c", "zzz"]', "ac"),
        ("seed not in [1, 3]", "bq"),
        ("seed in []", ""),
        ("omega_m in [0.25]", "a"),
        ("omega_m not in [0.25]", "bq"),
        ('day > "2024-01-02"', "cq"),
        ("seed == 1 or seed == 3 and sample == 'zzz'", "a"),
        ("(seed == 1 or seed == 3) and sample == 'zzz'", ""),
        ("not seed == 1 and not (seed == 3 or seed == 4)", "b"),
        ("not not seed == 1", "a"),
        (" or ".join(f"seed == {number}" for number in range(3, 3000)), "cq"),
    ],
)
def test_conditions_hold_where_they_say(expression: str, expected: str) -> None:
    """Comparisons, null, lists, and the order in which not, and, or bind."""
    assert _ids(expression) == expected


@pytest.mark.parametrize(
    ("expression", "character", "words"),
    [
        ("", 1, "found the end, expected a column, a number or a string"),
        ("omega_m", 8, "found the end, expected an operator"),
        ("omega_m >", 10, "found the end, expected a column, a number or a string"),
        ("omega_m = 0.3", 9, "found '=', expected =="),
        ("omega_m > 0.3 & seed == 1", 15, "found '&', expected and"),
        ("seed == 1 | seed == 2", 11, "found '|', expected or"),
        ("!(seed == 1)", 1, "found '!', expected not or !="),
        ("seed == 1 seed == 2", 11, "found 'seed', expected and, or, or the end"),
        ("0 < seed < 3", 10, "found '<', expected and, or, or the end"),
        ("(seed == 1", 11, "found the end, expected )"),
        ("seed == 1)", 10, "found ')', expected and, or, or the end"),
        ("seed == (1)", 9, "found '('"),
        ('sample == "a', 11, "found '\"', expected the same quote again"),
        ("sample == 1x", 11, "found '1x', expected a number, or a name in `backticks`"),
        ("seed == 3 ; 1", 11, "found ';'"),
        ("samle == 'a'", 1, "found 'samle', expected a column: sample, path, dataset, shape"),
        ("seed > 0 and samle == 'a'", 14, "found 'samle'"),
        ("statistics.nan == 0", 12, "found 'nan', expected a field: count, nan_count"),
        ("statistics > 0", 1, "found 'statistics', expected one of its fields, such as statistics.count"),
        ("sample.x == 0", 8, "expected no field, for what is before it is of type string"),
        ("statistics. == 0", 13, "expected the name of a field"),
        ("sample == 1", 11, "found 1, expected a string, as column sample holds"),
        ("seed == 'a'", 9, "found 'a', expected a number, as column seed holds"),
        ("seed == true", 9, "found True, expected a number"),
        ("seed == [1]", 9, "found [1], expected a number"),
        ("shape == 4", 10, "found 4, expected a list, as column shape holds"),
        ("shape < [4]", 9, "expected == or != before it"),
        ("omega_m < null", 11, "found null, expected == or != before it"),
        ("sample == seed", 11, "expected a column that can be compared with one of type string"),
        ("shape == window", 10, "expected a column that can be compared"),
        ("1 == 1", 1, "expected a column on one side"),
        ("1 in [1]", 1, "expected a column before in"),
        ("seed in 1", 9, "found '1', expected ["),
        ("seed in [1 2]", 12, "found '2', expected ,"),
        ("seed in ['a']", 9, "found 'a', expected a list of what column seed holds: a number"),
        ("seed in [null]", 9, "found null"),
        ("seed in [1", 11, "found the end, expected ,"),
        ("seed == 9223372036854775808", 9, "expected an integer of 64 bits"),
        ("day == 'tomorrow'", 8, "found 'tomorrow', expected a date32[day], as column day holds"),
        ("seed == --1", 10, "found '-'"),
        ("(" * 200 + "seed == 1" + ")" * 200, 101, "expected at most 100 conditions inside each other"),
        ("__import__('os') == 1", 11, "found '(', expected an operator"),
    ],
)
def test_what_is_no_condition_points_at_the_place(expression: str, character: int, words: str) -> None:
    """The message names the character, what stands there, and what should."""
    with pytest.raises(UsageError) as caught:
        filter_rows(ROWS, where=parse(expression))
    assert f"expression {expression!r}, character {character}: " in str(caught.value)
    assert words in str(caught.value)


Tree = tuple[str, Callable[[dict[str, Any]], bool]]


def _leaf(name: str, sign: str, value: int) -> Tree:
    compare = {"==": int.__eq__, "!=": int.__ne__, "<": int.__lt__, "<=": int.__le__, ">": int.__gt__, ">=": int.__ge__}
    return f"{name}{sign}{value}", lambda row: compare[sign](row[name], value)


_LEAVES = st.builds(
    _leaf, st.sampled_from(["x", "y"]), st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), st.integers(-2, 2)
)
_TREES: st.SearchStrategy[Tree] = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda a, b: (f"({a[0]}) and ({b[0]})", lambda row: a[1](row) and b[1](row)), inner, inner),
        st.builds(lambda a, b: (f"({a[0]}) or ({b[0]})", lambda row: a[1](row) or b[1](row)), inner, inner),
        st.builds(lambda a: (f"not ({a[0]})", lambda row: not a[1](row)), inner),
    ),
    max_leaves=8,
)
_SQUARE = rows(
    [f"{x},{y}" for x in range(-2, 3) for y in range(-2, 3)],
    x=[x for x in range(-2, 3) for _ in range(5)],
    y=[y for _ in range(5) for y in range(-2, 3)],
)


@given(tree=_TREES)
def test_any_condition_holds_where_python_says(tree: Tree) -> None:
    """However conditions stand inside each other, they hold for the rows for which Python's own operators do."""
    expression, holds = tree
    expected = [row["sample"] for row in _SQUARE.table.to_pylist() if holds(row)]
    assert filter_rows(_SQUARE, where=parse(expression)).samples == expected


@given(text=st.text(max_size=30))
def test_any_text_is_a_condition_or_an_error(text: str) -> None:
    """Nothing that is written ends in anything but rows or a UsageError."""
    try:
        found = filter_rows(ROWS, where=parse(text))
    except UsageError as error:
        assert "character" in str(error)  # noqa: PT017 - either outcome is right
    else:
        assert len(found) <= len(ROWS)


def test_samples_on_a_list() -> None:
    """The order is the catalogue's, a condition may be added, and a name that is not there is an error."""
    assert filter_rows(ROWS, samples=["c", "a"]).samples == ["a", "c"]
    assert filter_rows(ROWS, samples=["c", "a"], where=parse("seed == 3")).samples == ["c"]
    with pytest.raises(NotFoundError, match="the catalogue: found no sample 'x'; 2 of the list are not there"):
        filter_rows(ROWS, samples=["y", "x", "a"])
