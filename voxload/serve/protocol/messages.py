"""Messages: all that clients and the service say to each other, by version of the protocol.

``tests/serve/protocol/VERSION.json`` says the same in data, for each version that was released; what such a file says
never changes. Who reads a message leaves out what it does not know: a field may be added that has a default, and a
message that only who announced the feature sends. Anything else is another version.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar

from voxload.serve.protocol.wire import NAMES, fields_of

VERSIONS = (1, 1)
"""First and last version that this build speaks."""


@dataclass(frozen=True, slots=True)
class Hello:
    """A client's first message."""

    kind: ClassVar[str] = "hello"
    first: int
    """First version that it speaks."""
    last: int
    """Last one."""
    build: str
    """Version of its voxload."""
    name: str = ""
    """What people call the job."""
    boot: str = ""
    """Of the service that it had a session with; empty for none."""
    session: int = 0
    """That session, to be gone on with."""
    generation: int = 0
    """Of that session."""
    features: tuple[str, ...] = ()
    """What it can do beyond the version."""


@dataclass(frozen=True, slots=True)
class Welcome:
    """The answer to a client that is let in."""

    kind: ClassVar[str] = "welcome"
    version: int
    """That both speak from now on."""
    build: str
    """Version of the service's voxload."""
    boot: str
    """Another one each time that the service begins."""
    session: int
    generation: int
    """Grows whenever the session is gone on with by another connection."""
    lease: float
    """Seconds from now in which it has to be renewed."""
    features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """The answer to a client that is not let in; the connection ends with it."""

    kind: ClassVar[str] = "refused"
    reason: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Renew:
    """A client's sign of life."""

    kind: ClassVar[str] = "renew"
    boot: str
    session: int
    generation: int


@dataclass(frozen=True, slots=True)
class Renewed:
    """The answer to it."""

    kind: ClassVar[str] = "renewed"
    boot: str
    session: int
    generation: int
    lease: float
    """Seconds from now in which it has to be renewed."""


@dataclass(frozen=True, slots=True)
class Bye:
    """A client's last message: its session ends."""

    kind: ClassVar[str] = "bye"


@dataclass(frozen=True, slots=True)
class Blocks:
    """What the client will name by numbers from now on; with a descriptor of their table, see `blocktable`.

    Numbers go on from those of the tables before.
    """

    kind: ClassVar[str] = "blocks"
    count: int


@dataclass(frozen=True, slots=True)
class Order:
    """What the client will use from a place in its order on; with a descriptor of the numbers, little-endian int64.

    What it said of uses from there on before is forgotten.
    """

    kind: ClassVar[str] = "order"
    place: int
    count: int


@dataclass(frozen=True, slots=True)
class Reached:
    """The client has used all that lies before a place in its order."""

    kind: ClassVar[str] = "reached"
    place: int


@dataclass(frozen=True, slots=True)
class Want:
    """The client waits for a block that it did not find in the memory."""

    kind: ClassVar[str] = "want"
    block: int
    again: int = 0
    """1 where it was told that the block is there, and did not find it."""


@dataclass(frozen=True, slots=True)
class Look:
    """The client asks what the service keeps, and for whom."""

    kind: ClassVar[str] = "look"


@dataclass(frozen=True, slots=True)
class Report:
    """What the client met with since its session began."""

    kind: ClassVar[str] = "report"
    hits: int
    """Blocks that it took out of the service's memory."""
    hit_bytes: int
    misses: int
    """Blocks that it had to read from the storage itself."""
    stall: float
    """Seconds that its loop waited."""
    steps: int
    """Batches that its loop has taken."""


@dataclass(frozen=True, slots=True)
class Keep:
    """The client wants blocks kept near, whoever uses them; with a descriptor of their numbers as those of an `Order`.

    They stay when the client is gone. What had the name before is not kept for it any more.
    """

    kind: ClassVar[str] = "keep"
    name: str
    count: int
    """0 ends it."""
    seconds: float = 0.0
    """For which they are kept; 0 for as long as the service runs."""


@dataclass(frozen=True, slots=True)
class Clear:
    """The client wants all forgotten that no job foresees and nobody wants kept."""

    kind: ClassVar[str] = "clear"


@dataclass(frozen=True, slots=True)
class Limit:
    """The client wants less or more of the memory used from now on."""

    kind: ClassVar[str] = "limit"
    memory: int
    """Bytes."""
    user: int = -1
    """Whose; of a service for all users, which only root may ask."""
    share: float = 1.0
    """Of the reads of the storage, beside the shares of other users."""


@dataclass(frozen=True, slots=True)
class Drain:
    """The client wants the service to end, once what is in memory is on disk."""

    kind: ClassVar[str] = "drain"


@dataclass(frozen=True, slots=True)
class Done:
    """The answer to `Keep`, `Clear` and `Limit`, and to `Drain` once all is stored."""

    kind: ClassVar[str] = "done"
    count: int = 0
    """Blocks that it was about."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Where blocks are; with the descriptor of a memory tier. Comes once, after the welcome."""

    kind: ClassVar[str] = "memory"
    name: str
    """For people."""


@dataclass(frozen=True, slots=True)
class There:
    """The answer to a `Want`: the block is in the memory."""

    kind: ClassVar[str] = "there"
    block: int


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The answer to a `Want`: the block is not to be had from the service."""

    kind: ClassVar[str] = "unavailable"
    block: int


@dataclass(frozen=True, slots=True)
class Figures:
    """The answer to a `Look`; with a descriptor of JSON, which people and programs read."""

    kind: ClassVar[str] = "figures"


Message = (
    Hello
    | Welcome
    | Refused
    | Renew
    | Renewed
    | Bye
    | Blocks
    | Order
    | Reached
    | Want
    | Look
    | Report
    | Keep
    | Clear
    | Limit
    | Drain
    | Done
    | Memory
    | There
    | Unavailable
    | Figures
)
OF_CLIENTS: tuple[type[Message], ...] = (
    Hello,
    Renew,
    Bye,
    Blocks,
    Order,
    Reached,
    Want,
    Look,
    Report,
    Keep,
    Clear,
    Limit,
    Drain,
)
OF_SERVICE: tuple[type[Message], ...] = (Welcome, Refused, Renewed, Memory, There, Unavailable, Figures, Done)


@cache
@cache
def build() -> str:
    """Return the version of this voxload; empty where it was not installed. It is looked up once in a process."""
    try:
        return version("voxload")
    except PackageNotFoundError:
        return ""


def agreed(first: int, last: int, ours: tuple[int, int] = VERSIONS) -> int | None:
    """Return the last version that both sides speak; None where there is none."""
    found = min(last, ours[1])
    return found if found >= max(first, ours[0]) else None


def description() -> dict[str, Any]:
    """Return what ``protocol/VERSION.json`` says of the last version."""
    return {
        "version": VERSIONS[1],
        "client": {one.kind: _described(one) for one in OF_CLIENTS},
        "service": {one.kind: _described(one) for one in OF_SERVICE},
    }


def _described(message: type[Message]) -> dict[str, str]:
    return {name: NAMES[wanted] + ("" if needed else " or nothing") for name, wanted, needed in fields_of(message)}
