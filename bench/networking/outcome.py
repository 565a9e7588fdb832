"""Outcome: what became of one network on one grid, and the line of the table that a network's outcomes make."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.documented import table_row

VALUES, GRADIENTS = 1e-10, 1e-8
"""Largest relative differences in float64 that are rounding."""


class Verdict(enum.Enum):
    """What became of it."""

    EXACT = "exact"
    """Equal to one process, forward and backward, in training and in evaluation."""
    RANDOM = "not compared"
    """Its forward draws random numbers in both modes."""
    REFUSED = "refused"
    """Not run, with a reason."""
    WRONG = "wrong"
    """Anything else than one process gives."""
    CRASHED = "crashed"
    """Neither a result nor a refusal."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One network on one grid."""

    spatial: tuple[int, ...]
    verdict: Verdict
    result: float = 0.0
    """Worst relative error of results and buffers."""
    gradient: float = 0.0
    """Of gradients."""
    why: str = ""
    """The reason of a refusal, or the last line of a crash."""

    def document(self) -> dict[str, Any]:
        """Return it for a file."""
        return asdict(self) | {"verdict": self.verdict.value}

    @classmethod
    def read(cls, document: dict[str, Any]) -> Outcome:
        """Return what a file says."""
        return cls(**document | {"spatial": tuple(document["spatial"]), "verdict": Verdict(document["verdict"])})


HEADER = ("network", "verdict", "results", "gradients", "whole at 128^3")


def worst(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the outcome that counts: that of the worst grid."""
    order = list(Verdict)
    return max(outcomes, key=lambda each: order.index(each.verdict))


def row(title: str, outcomes: Sequence[Outcome], whole: str) -> str:
    """Return the line of a network: the worst of its grids."""
    counts = worst(outcomes)
    exact = [each for each in outcomes if each.verdict in {Verdict.EXACT, Verdict.WRONG}]
    figures = [f"{max((getattr(each, name) for each in exact), default=0.0):.0e}" for name in ("result", "gradient")]
    verdict = counts.verdict.value + (f": {counts.why}" if counts.why else "")
    return table_row([title, verdict, *(figures if exact else ("", "")), whole])
