"""Limits: each is raised by its variable, refuses more, and stands in the documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from voxload.errors import DataError, UsageError
from voxload.files import limits
from voxload.files.limits import Limit

LIMITS = [value for value in vars(limits).values() if isinstance(value, Limit)]
PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "limits.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.variable)
def test_a_limit_refuses_more_and_lets_by_what_is_allowed(limit: Limit, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable raises it, in bytes as people write them too."""
    limit.check("a file", limit.default, "a claim")
    with pytest.raises(DataError, match=f"a file: found a claim of .* set {limit.variable}="):
        limit.check("a file", limit.default + 1, "a claim")
    monkeypatch.setenv(limit.variable, "64GiB")
    limit.check("a file", 2**36, "a claim")
    with pytest.raises(DataError, match=f"at most {2**36}"):
        limit.check("a file", 2**36 + 1, "a claim")


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.variable)
def test_a_limit_is_documented(limit: Limit) -> None:
    """Whoever meets it looks for it there."""
    assert f"`{limit.variable}`" in PAGE


def test_a_variable_that_is_no_number_is_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that cannot be told is none."""
    monkeypatch.setenv(limits.TABLE.variable, "lots")
    with pytest.raises(UsageError, match=limits.TABLE.variable):
        limits.TABLE.check("a file", 1, "a claim")
