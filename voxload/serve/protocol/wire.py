"""Wire: how messages go into packets and come out of them, whatever they say.

Who reads a message leaves out what it does not know, and believes no field to be what it is said to be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, fields
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, get_type_hints

from voxload.errors import DataError

if TYPE_CHECKING:
    from dataclasses import Field

LARGEST = 2**53
"""Number; of larger ones not all are in JSON's reach (RFC 8259, section 6)."""
LONGEST_NAME = 200
"""Characters of what people are shown."""
NAMES = {str: "text", int: "integer", float: "number", tuple[str, ...]: "texts"}
"""What a field can be."""


class Kind(Protocol):
    """A frozen dataclass of such fields, whose `kind` tells it from others."""

    kind: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


M = TypeVar("M", bound=Kind)


def encoded(message: Kind) -> dict[str, Any]:
    """Return a message as it goes into a packet."""
    return {"kind": message.kind, **asdict(message)}


def decoded(words: Mapping[str, Any], known: Sequence[type[M]]) -> M:
    """Return the message of a packet, one of those `known`; raises DataError at anything else."""
    kind = words.get("kind")
    found = next((one for one in known if one.kind == kind), None)
    if found is None:
        raise DataError("message", found=repr(kind)[:LONGEST_NAME], expected=f"one of {[one.kind for one in known]}")
    values: dict[str, Any] = {}
    for name, wanted, is_needed in fields_of(found):
        if name in words:
            values[name] = _checked(words[name], wanted, f"{kind}.{name}")
        elif is_needed:
            raise DataError(f"{kind}.{name}", found="nothing", expected=NAMES[wanted])
    return found(**values)


def fields_of(message: type[Kind]) -> list[tuple[str, Any, bool]]:
    """Return name and type of each field, and whether it has no default."""
    hints = _hints_of(message)
    return [(one.name, hints[one.name], one.default is MISSING) for one in fields(message)]


@cache  # to find them takes longer than all else that is done with a message
def _hints_of(message: type[Any]) -> dict[str, Any]:
    return get_type_hints(message)


def _checked(value: Any, wanted: Any, subject: str) -> Any:
    if wanted == tuple[str, ...] and isinstance(value, list) and all(isinstance(one, str) for one in value):
        return tuple(value)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= LARGEST
    if wanted is float and is_number:
        return float(value)
    if (wanted is int and is_number and isinstance(value, int)) or (wanted is str and isinstance(value, str)):
        return value
    raise DataError(subject, found=repr(value)[:LONGEST_NAME], expected=NAMES[wanted])
