"""Terms of an expression: its words, columns and literals, each of which knows where it stands, for messages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from voxload.errors import UsageError

_WORDS = re.compile(
    r"""\s*(?:
    (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?!\w))
    |(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<name>[^\W\d]\w*|`[^`]+`)
    |(?P<sign>==|!=|<=|>=|[<>()\[\],.+-])
    )""",
    re.VERBOSE | re.DOTALL,
)
_KEYWORDS = frozenset({"and", "or", "not", "in", "true", "false", "null"})


class Kind(Enum):
    """What a word is."""

    NUMBER = auto()
    STRING = auto()
    NAME = auto()
    KEYWORD = auto()
    SIGN = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """A word of an expression."""

    kind: Kind
    """What it is."""
    text: str
    """The name, the keyword in small letters, the string without quotes, or what stands there."""
    place: int
    """Its first character, counted from 0."""
    expression: str
    """The whole expression."""

    def wrong(self, *, expected: str, found: str = "") -> UsageError:
        """Return the error that this word is not what it should be."""
        there = found or (repr(self.text) if self.text or self.kind is Kind.STRING else "the end")
        return UsageError(f"expression {self.expression!r}, character {self.place + 1}", found=there, expected=expected)


def tokens(expression: str) -> list[Token]:
    """Return the words of an expression and one for its end; raises UsageError at what is none."""
    found: list[Token] = []
    place = 0
    while place < len(expression.rstrip()):
        match = _WORDS.match(expression, place)
        if match is None:
            rest = expression[place:].lstrip()
            text = rest[0] if rest[0] in "\"'`=&|!" else rest.split(maxsplit=1)[0]
            raise Token(Kind.SIGN, text, len(expression) - len(rest), expression).wrong(expected=_hint(text))
        found.append(_token(match, expression))
        place = match.end()
    return [*found, Token(Kind.END, "", len(expression), expression)]


def _token(match: re.Match[str], expression: str) -> Token:
    kind = Kind[str(match.lastgroup).upper()]
    text = match[kind.name.lower()]
    place = match.start(kind.name.lower())
    if kind is Kind.STRING:
        text = re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)
    elif kind is Kind.NAME and text.lower() in _KEYWORDS:
        kind, text = Kind.KEYWORD, text.lower()
    elif kind is Kind.NAME:
        text = text.strip("`")
    return Token(kind, text, place, expression)


def _hint(text: str) -> str:
    """Return what to write in place of a character that is no word."""
    if text in ('"', "'", "`"):
        return "the same quote again, at the end"
    if text[0].isdigit():
        return "a number, or a name in `backticks`"
    return {"=": "==", "&": "and", "|": "or", "!": "not or !="}.get(text, "a column, a number, a string or an operator")


Value = str | float | bool | list[Any] | None
"""What may be written down."""

NUMBER, TEXT, BOOLEAN, LIST, NULL = "a number", "a string", "true or false", "a list", "null"
"""What values are, in words."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the catalogue, or a field of one."""

    names: tuple[Token, ...]
    """The column's name, and those of fields inside each other."""
    place: int | None = None
    """Which value of a list, counted from 0; None for all of what the column holds."""

    @property
    def token(self) -> Token:
        """Where it is written."""
        return self.names[0]

    def of(self, table: pa.Table) -> pa.ChunkedArray:
        """Return its values; raises UsageError that lists the names there are."""
        first, *rest = self.names
        if first.text not in table.column_names:
            raise first.wrong(expected=f"a column: {', '.join(table.column_names)}")
        found = table.column(first.text)
        for name in rest:
            if not pa.types.is_struct(found.type):
                raise name.wrong(expected=f"no field, for what is before it is of type {found.type}")
            fields = [field.name for field in found.type]
            if name.text not in fields:
                raise name.wrong(expected=f"a field: {', '.join(fields)}")
            found = pc.struct_field(found, name.text)
        if pa.types.is_struct(found.type):
            fields = [field.name for field in found.type]
            raise self.token.wrong(expected=f"one of its fields, such as {self.token.text}.{fields[0]}")
        return found if self.place is None else self._value(found, self.place)

    def _value(self, found: pa.ChunkedArray, place: int) -> pa.ChunkedArray:
        """Return one value of each list; null of a shorter one."""
        if not (pa.types.is_list(found.type) or pa.types.is_large_list(found.type)):
            raise self.names[-1].wrong(expected=f"no place, for it is no list but of type {found.type}")
        values = [None if there is None or len(there) <= place else there[place] for there in found.to_pylist()]
        return pa.chunked_array([pa.array(values, found.type.value_type)])


@dataclass(frozen=True, slots=True)
class Literal:
    """A value written down."""

    value: Value
    """The value."""
    token: Token
    """Where it is written."""

    @property
    def kind(self) -> str:
        """What it is."""
        if self.value is None:
            return NULL
        if isinstance(self.value, bool):
            return BOOLEAN
        return TEXT if isinstance(self.value, str) else LIST if isinstance(self.value, list) else NUMBER

    def wrong(self, *, expected: str) -> UsageError:
        """Return the error that this value is not what it should be."""
        return self.token.wrong(found=repr(self.value) if self.value is not None else "null", expected=expected)


Operand = Column | Literal


def kind_of(found: pa.DataType) -> str:
    """Return what a column holds: as a literal's kind, or the name of a type that nothing written down has."""
    if pa.types.is_integer(found) or pa.types.is_floating(found) or pa.types.is_decimal(found):
        return NUMBER
    if pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_string_view(found):
        return TEXT
    if pa.types.is_boolean(found):
        return BOOLEAN
    return LIST if pa.types.is_list(found) or pa.types.is_large_list(found) else str(found)
