"""Told: what a part says while it runs, a line of JSON each, so that what it said before it died is not lost."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FAULTS = ("raise", "kill", "hang")
"""What can be made to go wrong in a part, to see that the run outlives it."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How a part runs."""

    device: str
    """``cuda``, or ``cpu``."""
    output: Path
    """Folder for its pictures."""
    is_small: bool
    """Whether sizes are those of a test."""
    limit: float
    """Seconds that it may take."""


class Teller:
    """Writes what a part says.

    Parameters
    ----------
    path
        The file.
    fault
        One of `FAULTS`, which happens before anything is said; empty for none.
    """

    def __init__(self, path: Path, fault: str = "") -> None:
        self._path = path
        self._fault = fault

    def figures(self, claim: str, *figures: float) -> None:
        """Say what was measured of a claim: one figure a round."""
        self._write({"claim": claim, "figures": [float(figure) for figure in figures]})

    def lack(self, claim: str, why: str) -> None:
        """Say that a claim cannot be measured here, and why."""
        self._write({"claim": claim, "lack": why})

    def detail(self, name: str, value: Any) -> None:
        """Say something that no claim asks for, as plain values."""
        self._write({"detail": name, "value": value})

    def _write(self, line: Mapping[str, Any]) -> None:
        _be_faulty(self._fault)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


@dataclass(frozen=True, slots=True)
class Told:
    """All that a part said."""

    figures: dict[str, tuple[float, ...]] = field(default_factory=dict)
    lacks: dict[str, str] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)


def read(path: Path) -> Told:
    """Return what a file holds; a line that a killed process tore is left out."""
    told = Told()
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else ():
        if not line.endswith("\n"):
            break
        found = json.loads(line)
        if "detail" in found:
            told.details[found["detail"]] = found["value"]
        elif "lack" in found:
            told.lacks[found["claim"]] = found["lack"]
        else:
            told.figures[found["claim"]] = tuple(found["figures"])
    return told


def share_out(names: Sequence[str], faults: Sequence[str]) -> dict[str, str]:
    """Return the fault of each part by PART=FAULT; raises ValueError at anything else."""
    found = {}
    for word in faults:
        name, _, fault = word.partition("=")
        if name not in names or fault not in FAULTS:
            raise ValueError(f"{word}: not PART=FAULT, of {', '.join(names)} and {', '.join(FAULTS)}")
        found[name] = fault
    return found


def _be_faulty(fault: str) -> None:
    if fault == "raise":
        raise RuntimeError("a fault that was asked for")
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "hang":
        threading.Event().wait()
