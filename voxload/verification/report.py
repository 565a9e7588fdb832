"""VerifyReport: what a verification found; Fault: one thing that is wrong."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from pathlib import Path

LISTED = 1000
"""Faults that a report lists; beyond them they are only counted, so that a lost file system fits into memory."""


class Check(enum.StrEnum):
    """What was done with a volume."""

    CHECKSUM = "checksum"
    """Every chunk as stored was compared with its checksum."""
    DECODED = "decoded"
    """Every chunk was decoded: finds what is missing or cut short, and a flipped bit where a codec notices it."""
    READ = "read"
    """All voxels were read: contiguous storage has nothing that could tell a wrong byte."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong."""

    sample: str
    """Sample id."""
    dataset: str
    """Dataset name."""
    file: str
    """File or folder of the volume."""
    chunk: tuple[int, ...] | None
    """Place in the grid of chunks, in stored axis order; None where the volume as a whole is at fault."""
    error: str
    """What is wrong, with a remedy where there is one."""


@dataclass(frozen=True, slots=True)
class VerifyProgress:
    """How far a verification is; counts bytes as stored."""

    sample: str
    """The sample that is being verified."""
    bytes_done: int
    """Bytes verified so far."""
    bytes_total: int
    """Bytes of all volumes, by the catalogue."""


@dataclass(slots=True)
class VerifyReport:
    """What a verification found; grows while it runs."""

    catalog: Path
    """The catalogue."""
    volumes: dict[Check, int] = field(default_factory=lambda: dict.fromkeys(Check, 0))
    """Volumes by what was done with them; one that could not be opened counts nowhere."""
    chunks: int = 0
    """Chunks read."""
    bytes_read: int = 0
    """Bytes read."""
    recorded: int = 0
    """Volumes that got checksums."""
    damaged: int = 0
    """Faults, those beyond the listed ones too."""
    faults: list[Fault] = field(default_factory=list)
    """The first `LISTED` faults."""
    seconds: float = 0.0
    """Time it took."""

    def note(self, fault: Fault) -> None:
        """Count a fault, and list it if there is room."""
        self.damaged += 1
        if len(self.faults) < LISTED:
            self.faults.append(fault)
