"""ThriftReader: structures in Thrift's compact protocol, as far as Parquet's page headers need them.

Source: Apache Thrift, specification of the compact protocol.
"""

from __future__ import annotations

from typing import Any

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_MOST_VARINT = 10
"""Bytes of an integer at most."""
_DEEPEST = 8


class ThriftReader:
    """Reads structures from bytes; for one thread.

    Parameters
    ----------
    data
        The bytes; may go on behind a structure.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.place = 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Return a structure's fields by number: integers, bytes and structures; of others None.

        Raises EOFError when the bytes end within it, ValueError when they are none.
        """
        if depth > _DEEPEST:
            raise ValueError("structures that are nested too deeply")
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            step, kind = head >> 4, head & 0x0F
            number = number + step if step else self._integer()
            fields[number] = self._value(kind, depth, is_field=True)
        return fields

    def _value(self, kind: int, depth: int, *, is_field: bool = False) -> Any:
        if kind in (_TRUE, _FALSE):
            if not is_field:
                self._byte()
            return None
        if kind == _BYTE:
            return self._byte()
        if kind in (_I16, _I32, _I64):
            return self._integer()
        if kind == _DOUBLE:
            return self._take(8)
        if kind == _BINARY:
            return self._take(self._varint())
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind in (_LIST, _SET):
            head = self._byte()
            for _ in range(self._varint() if head >> 4 == 0x0F else head >> 4):
                self._value(head & 0x0F, depth + 1)
            return None
        raise ValueError(f"a field of type {kind}")

    def _byte(self) -> int:
        return self._take(1)[0]

    def _take(self, count: int) -> bytes:
        found = self._data[self.place : self.place + count]
        if len(found) < count:
            raise EOFError
        self.place += count
        return found

    def _varint(self) -> int:
        value = 0
        for number in range(_MOST_VARINT):
            byte = self._byte()
            value |= (byte & 0x7F) << (7 * number)
            if byte < 0x80:
                return value
        raise ValueError("an integer without an end")

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
