"""Outcome: what one claim's measurement found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bench.harness.findings import Finding


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table as text; its first column is a name."""

    title: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Figures of one measurement, and what was asked of them."""

    findings: tuple[Finding, ...] = ()
    sheets: tuple[Sheet, ...] = ()
    document: dict[str, Any] = field(default_factory=dict)
    """Every figure as plain values."""
    others: tuple[float, ...] = ()
    """Cores that others used while the clock ran."""
    wrong: tuple[str, ...] = ()
    """Results that should have been others."""


def milliseconds(seconds: float) -> str:
    """Return a time as text."""
    return f"{seconds * 1e3:.1f}"
