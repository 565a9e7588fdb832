"""Guests: what a service knows of its clients, and what they say in bulk, looked at before it is believed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from voxload.errors import DataError
from voxload.prefetch.line import Ints
from voxload.serve.protocol.blocktable import MOST, divided
from voxload.serve.protocol.bulk import only, taken
from voxload.serve.protocol.messages import Message, Report
from voxload.serve.protocol.wire import LARGEST, LONGEST_NAME

USES = 2**20
"""Uses of an order, at once."""
_USE = np.dtype("<i8")

Say = Callable[[Message, Sequence[int]], None]
"""Sends a message with descriptors to a client; raises nothing."""


@dataclass(slots=True)
class Guest:
    """A client that is in."""

    say: Say
    blocks: list[int] = field(default_factory=list)
    """Numbers in the book, by the client's own."""
    wanted: dict[int, set[int]] = field(default_factory=dict)
    """The client's numbers of what it waits for, by the book's."""
    place: int = 0
    end: int = 0
    report: Report = field(default_factory=lambda: Report(0, 0, 0, 0.0, 0))
    """Its last one."""
    is_draining: bool = False
    """Whether it waits for all to be stored."""

    def figures(self) -> dict[str, Any]:
        """Return what people and programs see of it."""
        return {
            "blocks": len(self.blocks),
            "ahead": self.end - self.place,
            "waiting": len(self.wanted),
            "hits": self.report.hits,
            "hit_bytes": self.report.hit_bytes,
            "misses": self.report.misses,
            "stall_seconds": self.report.stall,
            "steps": self.report.steps,
        }


def named(descriptors: Sequence[int], count: int) -> tuple[Ints, list[bytes]]:
    """Return the sizes and lines of a table of blocks; raises DataError where that is none of so many."""
    if not 1 <= count <= MOST:
        raise DataError("blocks", found=str(count), expected=f"1 to {MOST}")
    return divided(taken("block table", only(descriptors)), count)


def foreseen(guest: Guest, descriptors: Sequence[int], count: int) -> Ints:
    """Return the book's numbers of what a client names by its own; raises DataError where these are not so many."""
    if not 0 <= count <= USES:
        raise DataError("order", found=f"{count} uses", expected=f"at most {USES}")
    data = taken("order", only(descriptors), most=count * _USE.itemsize)
    if len(data) != count * _USE.itemsize:
        raise DataError("order", found=f"{len(data)} bytes", expected=f"{count} uses")
    uses = np.frombuffer(data, _USE).astype(np.int64)
    if count and not (uses.min() >= 0 and uses.max() < len(guest.blocks)):
        found = f"blocks {uses.min()} to {uses.max()}"
        raise DataError("order", found=found, expected=f"0 to {len(guest.blocks) - 1}")
    numbers: Ints = np.array(guest.blocks, np.int64)[uses]
    return numbers


def name_of(text: str) -> str:
    """Return a name that people gave; raises DataError where it is none."""
    if not 1 <= len(text) <= LONGEST_NAME or not text.isprintable():
        raise DataError("name", found=repr(text[:LONGEST_NAME]), expected=f"1 to {LONGEST_NAME} characters to be shown")
    return text


def checked(report: Report) -> Report:
    """Return a report that can be; raises DataError of another one."""
    values = (report.hits, report.hit_bytes, report.misses, report.stall, report.steps)
    if not all(0 <= one <= LARGEST for one in values):
        raise DataError("report", found=str(values), expected="counts and seconds")
    return report


def added(one: Report, other: Report) -> Report:
    """Return what two clients met with together."""
    return Report(
        one.hits + other.hits,
        one.hit_bytes + other.hit_bytes,
        one.misses + other.misses,
        one.stall + other.stall,
        one.steps + other.steps,
    )
