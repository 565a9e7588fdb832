"""History: what happened from one look to the next, for pictures; pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SOURCES = ("memory", "disk", "storage", "past the service")
"""Where blocks came from: out of memory at once, into memory from disk or the storage, or read by jobs themselves."""


@dataclass(frozen=True, slots=True)
class Span:
    """What happened between two looks."""

    end: float
    """Seconds since the service began."""
    seconds: float
    blocks: tuple[float, float, float, float]
    """A second, by `SOURCES`."""
    storage: float
    """Bytes a second of the storage."""
    stalls: Mapping[str, float]
    """Seconds of stall a second, by job."""


class History:
    """The last so many spans; not safe to use from several threads at once."""

    def __init__(self, most: int) -> None:
        self._spans: deque[Span] = deque(maxlen=most)
        self._last: Mapping[str, Any] | None = None

    @property
    def spans(self) -> tuple[Span, ...]:
        """All spans, the oldest first."""
        return tuple(self._spans)

    def look(self, figures: Mapping[str, Any]) -> None:
        """Take in a look."""
        last, self._last = self._last, figures
        if last is None:
            return
        seconds = figures["seconds"] - last["seconds"]
        if seconds <= 0:
            return
        met, reads = _grown(figures, last, "jobs_met"), _grown(figures, last, "reads")
        near, far = reads["from_disk"], reads["done"] - reads["from_disk"]
        blocks = (max(0.0, met["hits"] - near - far), near, far, met["misses"])
        before = {job["session"]: job["stall_seconds"] for job in last["jobs"]}
        stalls: dict[str, float] = {}
        for job in figures["jobs"]:
            grown = job["stall_seconds"] - before.get(job["session"], 0.0)
            stalls[job["name"]] = stalls.get(job["name"], 0.0) + max(0.0, grown) / seconds
        rates = tuple(max(0.0, one) / seconds for one in blocks)
        self._spans.append(
            Span(
                figures["seconds"],
                seconds,
                (rates[0], rates[1], rates[2], rates[3]),
                reads["storage_bytes"] / seconds,
                stalls,
            )
        )


def _grown(figures: Mapping[str, Any], last: Mapping[str, Any], name: str) -> dict[str, float]:
    return {key: value - last[name][key] for key, value in figures[name].items()}
