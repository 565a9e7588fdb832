"""Orders: what the process that lets users in and the processes of tenants say to each other, as packets.

A tenant's process is as good as its user: what it says is looked at like what a stranger says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Bear:
    """To the nursery: make a tenant's process, with descriptors of its end of a pair, and of its memory."""

    kind: ClassVar[str] = "bear"
    uid: int
    gid: int
    groups: str
    """With commas."""
    memory: int
    """Bytes of the memory that goes with this."""
    usable: int
    """Of them, those that may be used at first."""
    threads: int


@dataclass(frozen=True, slots=True)
class Born:
    """The answer, with a descriptor of the process (pidfd_open(2))."""

    kind: ClassVar[str] = "born"
    pid: int


@dataclass(frozen=True, slots=True)
class Admit:
    """To a tenant: hear who connected; with the descriptor of the connection."""

    kind: ClassVar[str] = "admit"


@dataclass(frozen=True, slots=True)
class Allot:
    """To a tenant: use so much from now on."""

    kind: ClassVar[str] = "allot"
    number: int
    memory: int
    reads: int


@dataclass(frozen=True, slots=True)
class Fits:
    """The answer: no more than so many bytes are used, fewer than were allotted where the system does not give them."""

    kind: ClassVar[str] = "fits"
    number: int
    memory: int


@dataclass(frozen=True, slots=True)
class Tell:
    """To a tenant: say what is kept, and for whom."""

    kind: ClassVar[str] = "tell"


@dataclass(frozen=True, slots=True)
class Told:
    """The answer, with a descriptor of JSON."""

    kind: ClassVar[str] = "told"


@dataclass(frozen=True, slots=True)
class Jobs:
    """From a tenant: it has so many jobs now."""

    kind: ClassVar[str] = "jobs"
    count: int


@dataclass(frozen=True, slots=True)
class Has:
    """From a tenant: it has a block in memory; with a descriptor of the file that all of it is of."""

    kind: ClassVar[str] = "has"
    digest: str
    """Of its key, in hexadecimal."""


@dataclass(frozen=True, slots=True)
class Lost:
    """From a tenant: it does not have it any more."""

    kind: ClassVar[str] = "lost"
    digest: str


@dataclass(frozen=True, slots=True)
class Wants:
    """From a tenant: it wants a block; with a descriptor of its file, opened with the tenant's rights."""

    kind: ClassVar[str] = "wants"
    number: int
    digest: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class Give:
    """To a tenant: give a block."""

    kind: ClassVar[str] = "give"
    number: int
    digest: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class Given:
    """The answer to `Give` and to `Wants`, with a descriptor of memory with its bytes; with none where it is not there.

    To `Wants` in the number of that.
    """

    kind: ClassVar[str] = "given"
    number: int


Order = Bear | Born | Admit | Allot | Fits | Tell | Told | Jobs | Has | Lost | Wants | Give | Given
TO_NURSERY: tuple[type[Bear], ...] = (Bear,)
OF_NURSERY: tuple[type[Born], ...] = (Born,)
TO_TENANT: tuple[type[Order], ...] = (Admit, Allot, Tell, Give, Given)
OF_TENANT: tuple[type[Order], ...] = (Fits, Told, Jobs, Has, Lost, Wants, Given)
