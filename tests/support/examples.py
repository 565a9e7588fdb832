"""How many examples and cases tests have: all of them in `make test-long`, some in `make test`, which must be short."""

from __future__ import annotations

import os
import random
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import settings

IS_THOROUGH = os.environ.get("VOXLOAD_TEST_THOROUGH", "") == "1"
"""Whether all are drawn."""
_SHARE = 4
"""One of so many is drawn otherwise; derandomised in CI, so always the same ones."""
_LEAST = 4
_SETTINGS = "_hypothesis_internal_use_settings"


def few(count: int, *, share: int = _SHARE) -> int:
    """Return how many of `count` examples are drawn: one of `share`, and at least four."""
    return count if IS_THOROUGH else max(min(count, _LEAST), count // share)


def draw_few(items: list[pytest.Item]) -> None:
    """Let the property tests among `items` draw as few as that."""
    for item in items:
        function: Any = getattr(item, "function", None)
        found = getattr(function, _SETTINGS, None)
        if found is not None and not IS_THOROUGH and not hasattr(function, "drawn_few"):
            setattr(function, _SETTINGS, settings(found, max_examples=few(found.max_examples)))
            function.drawn_few = True


def choose_few(items: list[pytest.Item]) -> None:
    """Mark as long all but a few cases of the tests among `items` that are marked with how few.

    The same ones in every process and run, drawn and not counted off: those would all have one value of a parameter.
    """
    families: defaultdict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    for item in items:
        mark = item.get_closest_marker("few_cases")
        if mark is not None and item.get_closest_marker("long") is None:
            families[item.nodeid.partition("[")[0], mark.args[0]].append(item)
    for (name, share), cases in families.items():
        chosen = random.Random(name).sample(range(len(cases)), -(-len(cases) // share))
        for place, item in enumerate(cases):
            if place not in chosen:
                item.add_marker(pytest.mark.long)
