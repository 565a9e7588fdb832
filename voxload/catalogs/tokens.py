"""tokens: the words of an expression, each of which knows where it stands, for messages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

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
