"""operands: what a condition compares, the columns of a catalogue and values written down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from voxload.catalogs.tokens import Token
from voxload.errors import UsageError

Value = str | float | bool | list[Any] | None
"""What may be written down."""

NUMBER, TEXT, BOOLEAN, LIST, NULL = "a number", "a string", "true or false", "a list", "null"
"""What values are, in words."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the catalogue, or a field of one."""

    names: tuple[Token, ...]
    """The column's name, and those of fields inside each other."""

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
        return found


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
