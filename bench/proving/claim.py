"""Claim: something that is said of GPUs, what is asked of it, and what became of it; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from statistics import median
from typing import Any


class Verdict(StrEnum):
    """What became of a claim."""

    HELD = "held"
    """It was measured, and is what was asked for."""
    SHORT = "short"
    """It was measured, and is not."""
    SEEN = "seen"
    """It was measured; nothing was asked."""
    FAILED = "failed"
    """Its part ended before it was measured."""
    SKIPPED = "skipped"
    """Something that it needs is not here."""
    NOT_RUN = "not run"
    """Nobody has tried."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One line of the table."""

    name: str
    """What is measured; of all claims only one has it."""
    wanted: float | None = None
    """The least or most that is asked for; None where figures are only looked at."""
    is_least: bool = False
    """Whether more is better."""

    @property
    def asked(self) -> str:
        """What is asked, as text."""
        return "-" if self.wanted is None else f"{'>=' if self.is_least else '<='} {self.wanted:g}"

    def judge(self, figures: Sequence[float]) -> Verdict:
        """Return what some figures say of it, by their median; a figure that is no number is short."""
        if self.wanted is None:
            return Verdict.SEEN
        middle = median(figures)
        is_met = middle >= self.wanted if self.is_least else middle <= self.wanted
        return Verdict.HELD if is_met else Verdict.SHORT


@dataclass(frozen=True, slots=True)
class Row:
    """A claim, and what became of it."""

    part: str
    claim: Claim
    verdict: Verdict
    figures: tuple[float, ...] = ()
    """One of each round, or one alone."""
    why: str = ""
    """What failed, or what is missing."""

    @property
    def measured(self) -> str:
        """The middle figure, and the range of several, as text."""
        if not self.figures:
            return "-"
        text = f"{median(self.figures):.3g}"
        several = len(self.figures) > 1
        return f"{text} ({min(self.figures):.3g} to {max(self.figures):.3g})" if several else text

    def document(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Row:
        """Return what `document` made plain."""
        return cls(
            document["part"],
            Claim(**document["claim"]),
            Verdict(document["verdict"]),
            tuple(document["figures"]),
            document["why"],
        )
