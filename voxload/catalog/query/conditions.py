"""Conditions: what holds for a row of a catalogue or does not, or is not known where a value is missing."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Protocol, cast

import pyarrow as pa
import pyarrow.compute as pc

from voxload.catalog.query.terms import LIST, NULL, TEXT, Column, Literal, Operand, Token, kind_of
from voxload.catalog.rows import Rows
from voxload.errors import NotFoundError

_COMPARE: dict[str, Callable[..., pa.ChunkedArray]] = {
    "==": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Condition(Protocol):
    """What holds for a row or does not."""

    def holds(self, table: pa.Table) -> pa.ChunkedArray:
        """Return true, false or null for each row; raises UsageError that names the place of what is wrong."""
        ...


@dataclass(frozen=True, slots=True)
class AllOf:
    """Holds where all of its parts do."""

    parts: tuple[Condition, ...]
    """Two or more."""

    def holds(self, table: pa.Table) -> pa.ChunkedArray:
        """Return where it holds, as SQL's AND."""
        return reduce(pc.and_kleene, (part.holds(table) for part in self.parts))


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Holds where one of its parts does."""

    parts: tuple[Condition, ...]
    """Two or more."""

    def holds(self, table: pa.Table) -> pa.ChunkedArray:
        """Return where it holds, as SQL's OR."""
        return reduce(pc.or_kleene, (part.holds(table) for part in self.parts))


@dataclass(frozen=True, slots=True)
class Negation:
    """Holds where another does not."""

    inner: Condition
    """The other."""

    def holds(self, table: pa.Table) -> pa.ChunkedArray:
        """Return where it holds, as SQL's NOT."""
        return pc.invert(self.inner.holds(table))


@dataclass(frozen=True, slots=True)
class Membership:
    """Holds where a column has one of several values."""

    column: Operand
    """The column."""
    values: Literal
    """The values, a list."""

    def holds(self, table: pa.Table) -> pa.ChunkedArray:
        """Return where it holds; not known where the value is missing."""
        if isinstance(self.column, Literal):
            raise self.column.token.wrong(expected="a column before in")
        values = cast("list[object]", self.values.value)
        found = self.column.of(table)
        kind = kind_of(found.type)
        for value in values:
            literal = Literal(cast("str", value), self.values.token)
            if literal.kind != kind or kind == LIST:
                raise literal.wrong(expected=f"a list of what column {self.column.token.text} holds: {kind}")
        wanted = frozenset(values)
        return _each(found, lambda there: there in wanted)


@dataclass(frozen=True, slots=True)
class OtherThan:
    """Holds for all samples but some."""

    samples: frozenset[str]
    """Ids of those."""

    def holds(self, table: pa.Table) -> pa.ChunkedArray:
        """Return where it holds."""
        return pc.invert(pc.is_in(table.column("sample"), value_set=pa.array(sorted(self.samples), pa.string())))


@dataclass(frozen=True, slots=True)
class Comparison:
    """Holds where two operands compare as they should; one of them at least is a column."""

    left: Operand
    """What stands before the operator."""
    sign: Token
    """The operator."""
    right: Operand
    """What stands behind it."""

    def holds(self, table: pa.Table) -> pa.ChunkedArray:
        """Return where it holds; not known where a value is missing."""
        sign = self.sign.text
        try:
            if isinstance(self.left, Column):
                return _compared(self.left, sign, self.right, table)
            if isinstance(self.right, Column):
                return _compared(self.right, _MIRRORED.get(sign, sign), self.left, table)
        except pa.ArrowException as error:
            raise self.sign.wrong(expected=f"what can be compared: {str(error).splitlines()[0]}") from error
        raise self.left.token.wrong(expected="a column on one side")


def _compared(column: Column, sign: str, other: Operand, table: pa.Table) -> pa.ChunkedArray:
    found = column.of(table)
    if isinstance(other, Column):
        return _two_columns(found, sign, other, table)
    kind, name = kind_of(found.type), column.token.text
    if other.kind in (NULL, LIST) and sign not in ("==", "!="):
        raise other.wrong(expected=f"== or != before it: {sign} has no meaning for it")
    if other.kind == NULL:
        return pc.is_null(found) if sign == "==" else pc.is_valid(found)
    if other.kind == kind == LIST:
        compare = operator.eq if sign == "==" else operator.ne
        return _each(found, lambda there: compare(there, other.value))
    if other.kind == kind:
        return _COMPARE[sign](found, pa.scalar(other.value))
    if other.kind == TEXT and kind == str(found.type):  # a date, a time, or what else has no literal of its own
        try:
            return _COMPARE[sign](found, pa.scalar(other.value).cast(found.type))
        except pa.ArrowException as error:
            raise other.wrong(expected=f"a {found.type}, as column {name} holds") from error
    raise other.wrong(expected=f"{kind}, as column {name} holds")


def _two_columns(found: pa.ChunkedArray, sign: str, other: Column, table: pa.Table) -> pa.ChunkedArray:
    values = other.of(table)
    kind = kind_of(found.type)
    if kind_of(values.type) != kind or kind == LIST:
        raise other.token.wrong(expected=f"a column that can be compared with one of type {found.type}")
    return _COMPARE[sign](found, values)


def _each(found: pa.ChunkedArray, holds: Callable[[object], bool]) -> pa.ChunkedArray:
    """Return what holds for each value that is there; Arrow compares no lists."""
    return pa.chunked_array(
        [pa.array([None if there is None else holds(there) for there in found.to_pylist()], pa.bool_())]
    )


def filter_rows(rows: Rows, *, where: Condition | None = None, samples: Iterable[str] | None = None) -> Rows:
    """Return the rows, in their order, for which `where` holds and whose sample is one of `samples`.

    Raises
    ------
    UsageError
        When the condition names no column, or compares what cannot be compared.
    NotFoundError
        When a sample is not there.
    """
    found = rows
    if samples is not None:
        wanted = set(samples)
        unknown = wanted - set(rows.samples)
        if unknown:
            remedy = "take it off the list" if len(unknown) == 1 else f"{len(unknown)} of the list are not there"
            raise NotFoundError(rows.name or "the catalogue", found=f"no sample {min(unknown)!r}", remedy=remedy)
        found = rows.keep([sample in wanted for sample in rows.samples])
    return found if where is None else found.keep(where.holds(found.table))
