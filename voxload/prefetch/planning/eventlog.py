"""EventLog: all that a planner was told and answered; replayed, it gives the same answers."""

from __future__ import annotations

import json
import typing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, Protocol

import numpy as np

from voxload.errors import DataError
from voxload.files.regular import parse_json
from voxload.prefetch import events
from voxload.prefetch.events import Event, Instruction, Part, Source
from voxload.prefetch.placement import RankPlan


@dataclass(frozen=True, slots=True)
class Cut:
    """The order turned out different: everything from a step on was forgotten."""

    step: int


Told = Event | RankPlan | Cut
"""What a planner is told: by `handle`, `extend` and `cut`."""

NAMES: dict[str, type] = {
    kind.__name__: kind
    for kind in (*typing.get_args(Event), *typing.get_args(Instruction), RankPlan, Cut, Part, Source)
}
ENUMS: dict[str, type[Enum]] = {kind.__name__: kind for kind in (events.SourceKind, events.Failure)}


class Plans(Protocol):
    """What can be told plans and events: a `Planner`, or a `Logged` one."""

    def extend(self, plan: RankPlan) -> None:
        """See `Planner.extend`."""
        ...

    def cut(self, step: int) -> None:
        """See `Planner.cut`."""
        ...

    def handle(self, event: Event) -> list[Instruction]:
        """See `Planner.handle`."""
        ...


@dataclass(frozen=True, slots=True)
class Record:
    """One thing told, and what was answered."""

    told: Told
    answer: tuple[Instruction, ...] = ()


class EventLog:
    """Records in the order in which they happened; grows with the run, so it is for finding out, not for every job."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._records = list(records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def append(self, told: Told, answer: Iterable[Instruction] = ()) -> None:
        """Add what was told and answered."""
        self._records.append(Record(told, tuple(answer)))

    def to_text(self) -> str:
        """Return the log as JSON lines: one object a record, floats with all their digits."""
        lines = ({"told": _plain(record.told), "answer": _plain(record.answer)} for record in self._records)
        return "".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in lines)

    @classmethod
    def from_text(cls, text: str) -> EventLog:
        """Return the log that `to_text` wrote; raises `DataError` where it did not."""
        log = cls()
        for number, line in enumerate(text.splitlines(), start=1):
            try:
                parsed = parse_json(line)
                log.append(_rebuilt(parsed["told"]), _rebuilt(parsed["answer"]))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise DataError(
                    f"event log, line {number}", found=str(error), expected="what EventLog wrote"
                ) from error
        return log


class Logged:
    """A planner whose every call is logged.

    Parameters
    ----------
    planner
        Is called only through this.
    log
        Grows with each call; a call that raises is logged too, without answer, so that the replay raises as well.
    """

    def __init__(self, planner: Plans, log: EventLog) -> None:
        self._planner, self.log = planner, log

    def extend(self, plan: RankPlan) -> None:
        """See `Planner.extend`."""
        self.log.append(plan)
        self._planner.extend(plan)

    def cut(self, step: int) -> None:
        """See `Planner.cut`."""
        self.log.append(Cut(step))
        self._planner.cut(step)

    def handle(self, event: Event) -> list[Instruction]:
        """See `Planner.handle`."""
        answer: list[Instruction] = []
        try:
            answer = self._planner.handle(event)
        finally:
            self.log.append(event, answer)
        return answer


def replay(planner: Plans, told: Iterable[Told]) -> list[list[Instruction]]:
    """Tell a planner all again; return its answers, one list each.

    They equal the logged ones when the planner is a new one, made with the same arguments as the logged one.
    """
    answers: list[list[Instruction]] = []
    for one in told:
        answers.append([])
        match one:
            case RankPlan():
                planner.extend(one)
            case Cut():
                planner.cut(one.step)
            case _:
                answers[-1] = planner.handle(one)
    return answers


def _plain(value: Any) -> Any:
    """Return a value as what JSON knows; dataclasses, enums and arrays as objects that name their type."""
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
        return {"type": type(value).__name__, **parts}
    if isinstance(value, Enum):
        return {"type": type(value).__name__, "value": value.value}
    if isinstance(value, np.ndarray):
        return {"type": "array", "dtype": value.dtype.str, "shape": list(value.shape), "values": value.ravel().tolist()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _rebuilt(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_rebuilt(item) for item in value)
    if not isinstance(value, dict):
        return value
    parts = {name: _rebuilt(part) for name, part in value.items() if name != "type"}
    name = value["type"]
    if name == "array":
        return np.array(parts["values"], np.dtype(parts["dtype"])).reshape(parts["shape"])
    return ENUMS[name](parts["value"]) if name in ENUMS else NAMES[name](**parts)
