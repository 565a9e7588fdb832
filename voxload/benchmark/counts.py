"""Counts: what a loader counted between two looks; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def difference(after: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Return, number by number and for mappings inside too, what was added between two looks.

    A word that was not there before counts from 0.
    """
    found: dict[str, Any] = {}
    for name, value in after.items():
        if isinstance(value, Mapping):
            found[name] = difference(value, before.get(name, {}))
        elif isinstance(value, int | float):
            found[name] = value - before.get(name, 0)
    return found
