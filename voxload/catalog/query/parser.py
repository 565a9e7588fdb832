"""The language of conditions on the columns of a catalogue, parsed.

::

    condition:   condition or condition | condition and condition | not condition | (condition) | comparison
    comparison:  value == value, with != < <= > >= too | column in [...] | column not in [...]
    value:       column | number | "string" | 'string' | true | false | null | [value, ...]
    column:      name | name.name, a field of a struct | name[0], a value of a list | `any name`

``not`` binds closer than ``and``, and that closer than ``or``. Where a compared value is missing a comparison holds
as little as its negation, as in SQL; ``== null`` and ``!= null`` ask for that. Nothing is ever run as a program.
"""

from __future__ import annotations

from collections.abc import Callable

from voxload.catalog.query.conditions import AllOf, AnyOf, Comparison, Condition, Membership, Negation
from voxload.catalog.query.terms import Column, Kind, Literal, Operand, Token, Value, tokens

_OPERATORS = frozenset({"==", "!=", "<", "<=", ">", ">="})
_DEEPEST = 100
"""Conditions inside each other at most."""
_DIGITS = 9
"""Digits of a place in a list at most."""
_INT64 = range(-(2**63), 2**63)


def parse(expression: str) -> Condition:
    """Return the condition that an expression such as ``omega_m > 0.3 and sample != "x"`` writes down.

    Raises UsageError that names the character where it is no expression.
    """
    return _Parser(tokens(expression)).whole()


def parse_column(text: str) -> Column:
    """Return the column that ``name`` or ``name.field`` names; raises UsageError where it is no name."""
    return _Parser(tokens(text)).column()


class _Parser:
    """Recursive descent over the words of one expression."""

    def __init__(self, words: list[Token]) -> None:
        self._words = words
        self._next = 0
        self._depth = 0

    def whole(self) -> Condition:
        found = self._either()
        if self._word.kind is not Kind.END:
            raise self._word.wrong(expected="and, or, or the end")
        return found

    def column(self) -> Column:
        found = self._column()
        if self._word.kind is not Kind.END:
            raise self._word.wrong(expected="the end")
        return found

    @property
    def _word(self) -> Token:
        return self._words[self._next]

    def _take(self) -> Token:
        word = self._word
        self._next += 1
        return word

    def _is(self, text: str, ahead: int = 0) -> bool:
        """Tell whether the next word, or one behind it, is this keyword or sign."""
        word = self._words[min(self._next + ahead, len(self._words) - 1)]
        return word.kind in (Kind.KEYWORD, Kind.SIGN) and word.text == text

    def _skip(self, text: str) -> bool:
        """Take the next word if it is this keyword or sign."""
        is_there = self._is(text)
        self._next += is_there
        return is_there

    def _need(self, text: str) -> None:
        if not self._skip(text):
            raise self._word.wrong(expected=text)

    def _either(self) -> Condition:
        return self._chain("or", self._both, AnyOf)

    def _both(self) -> Condition:
        return self._chain("and", self._one, AllOf)

    def _chain(
        self, word: str, part: Callable[[], Condition], whole: Callable[[tuple[Condition, ...]], Condition]
    ) -> Condition:
        parts = [part()]
        while self._skip(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else whole(tuple(parts))

    def _one(self) -> Condition:
        if not self._is("not") and not self._is("("):
            return self._comparison()
        start = self._take()
        self._depth += 1
        if self._depth > _DEEPEST:
            raise start.wrong(expected=f"at most {_DEEPEST} conditions inside each other")
        if start.text == "not":
            found: Condition = Negation(self._one())
        else:
            found = self._either()
            self._need(")")
        self._depth -= 1
        return found

    def _comparison(self) -> Condition:
        left = self._operand()
        is_out = self._is("not") and self._is("in", 1)
        self._next += is_out
        if self._skip("in"):
            inside = Membership(left, self._list())
            return Negation(inside) if is_out else inside
        if self._word.text not in _OPERATORS or self._word.kind is not Kind.SIGN:
            raise self._word.wrong(expected="an operator: == != < <= > >= or in")
        return Comparison(left, self._take(), self._operand())

    def _operand(self) -> Operand:
        if self._is("["):
            return self._list()
        if self._word.kind is Kind.NAME:
            return self._column()
        return self._literal("a column, a number or a string")

    def _column(self) -> Column:
        names = [self._name("a column")]
        while self._skip("."):
            names.append(self._name("the name of a field"))
        return Column(tuple(names), self._place() if self._skip("[") else None)

    def _place(self) -> int:
        """Return which value of a list is meant."""
        word = self._word
        if word.kind is not Kind.NUMBER or not word.text.isdecimal() or len(word.text) > _DIGITS:
            raise word.wrong(expected="a place in a list, counted from 0")
        self._next += 1
        self._need("]")
        return int(word.text)

    def _name(self, expected: str) -> Token:
        if self._word.kind is not Kind.NAME:
            raise self._word.wrong(expected=expected)
        return self._take()

    def _list(self) -> Literal:
        start = self._word
        self._need("[")
        values: list[Value] = []
        while not self._skip("]"):
            if values:
                self._need(",")
            values.append(self._literal("a number or a string").value)
        return Literal(values, start)

    def _literal(self, expected: str) -> Literal:
        start = self._word
        if start.kind is Kind.STRING:
            return Literal(self._take().text, start)
        if start.kind is Kind.KEYWORD and start.text in ("true", "false", "null"):
            return Literal({"true": True, "false": False, "null": None}[self._take().text], start)
        sign = -1 if self._is("-") else 1
        self._next += self._is("-") or self._is("+")
        if self._word.kind is not Kind.NUMBER:
            raise self._word.wrong(expected=expected)
        return Literal(_number(self._take(), sign), start)


def _number(word: Token, sign: int) -> int | float:
    """Return a number, an integer where it is written as one."""
    if not word.text.isdecimal():
        return sign * float(word.text)
    if len(word.text) > 20 or sign * int(word.text) not in _INT64:
        raise word.wrong(expected="an integer of 64 bits")
    return sign * int(word.text)
