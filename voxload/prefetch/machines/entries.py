"""Entries: a table of a machine's file, whose entries are taken by name and kind."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from voxload.errors import UsageError
from voxload.prefetch.simulation.machine import Rates
from voxload.units import parse_bytes


class Entries:
    """A TOML table; errors name the file and the entry, and UsageError is all that is raised."""

    def __init__(self, table: Mapping[str, Any], where: str) -> None:
        self._table, self._where = table, where
        self._used: set[str] = set()

    def has(self, name: str) -> bool:
        """Tell whether there is an entry."""
        return name in self._table

    def part(self, name: str) -> Entries:
        """Return a table."""
        table = self._take(name, "a table")
        if not isinstance(table, dict):
            raise self._wrong(name, table, f"a table [{name}]")
        return Entries(table, f"{self._where}: [{name}]")

    def text(self, name: str) -> str:
        """Return text."""
        value = self._take(name, "text")
        if not isinstance(value, str):
            raise self._wrong(name, value, "text")
        return value

    def count(self, name: str) -> int:
        """Return a whole number from 1 on."""
        value = self._take(name, "a whole number")
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self._wrong(name, value, "a whole number from 1 on")
        return value

    def seconds(self, name: str) -> float:
        """Return seconds from 0 on."""
        value = self._take(name, "seconds")
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
            raise self._wrong(name, value, "seconds from 0 on")
        return float(value)

    def size(self, name: str) -> int:
        """Return bytes."""
        return self._bytes(name, self._take(name, "bytes"))

    def rate(self, name: str) -> float:
        """Return bytes per second."""
        value = self._take(name, "bytes per second")
        rate = self._bytes(name, value)
        if rate <= 0:
            raise self._wrong(name, value, "more than 0 bytes per second")
        return float(rate)

    def rates(self, name: str) -> Rates:
        """Return bytes per second by number of users."""
        value = self._take(name, "pairs of a number and bytes per second")
        try:
            pairs = [(int(users), float(parse_bytes(total))) for users, total in value]
            return Rates(tuple(users for users, _ in pairs), tuple(total for _, total in pairs))
        except (TypeError, ValueError) as error:
            if isinstance(error, UsageError):
                raise self._within(name, error) from None
            raise self._wrong(name, value, 'pairs such as [[1, "330MB"], [8, "2.87GB"]]') from None

    def positive(self, name: str) -> float:
        """Return a number above 0."""
        value = self._take(name, "a number above 0")
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
            raise self._wrong(name, value, "a number above 0")
        return float(value)

    def tables(self, name: str) -> list[Entries]:
        """Return tables of which there are several; none where there is no entry."""
        value = self._table.get(name, [])
        self._used.add(name)
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise self._wrong(name, value, f"tables [[{name}]]")
        return [Entries(each, f"{self._where}: [[{name}]] {place}") for place, each in enumerate(value)]

    def numbers(self, name: str) -> tuple[float, ...]:
        """Return a list of numbers."""
        value = self._take(name, "a list of numbers")
        if not _are_numbers(value):
            raise self._wrong(name, value, "a list of numbers")
        return tuple(map(float, value))

    def rows(self, name: str) -> list[tuple[float, ...]]:
        """Return lists of as many numbers."""
        value = self._take(name, "lists of numbers")
        if not isinstance(value, list) or not all(map(_are_numbers, value)) or len(set(map(len, value))) > 1:
            raise self._wrong(name, value, "lists of as many numbers")
        return [tuple(map(float, each)) for each in value]

    def names(self) -> tuple[str, ...]:
        """Return the names of all entries."""
        return tuple(self._table)

    def pass_over(self, name: str) -> None:
        """Count an entry as used, if it is there."""
        self._used.add(name)

    def check_all_used(self) -> None:
        """Raise UsageError for an entry that nothing asked for: a slip of the pen would go unnoticed."""
        unknown = sorted(set(self._table) - self._used)
        if unknown:
            raise UsageError(
                f"{self._where} {unknown[0]}", found="unknown", remedy="see template.toml in voxload/prefetch/machines"
            )

    def _take(self, name: str, kind: str) -> Any:
        self._used.add(name)
        if name not in self._table:
            raise UsageError(f"{self._where} {name}", found="nothing", expected=kind)
        return self._table[name]

    def _bytes(self, name: str, value: Any) -> int:
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise self._wrong(name, value, 'bytes, such as "64MB" or 64000000')
        try:
            return parse_bytes(value)
        except UsageError as error:
            raise self._within(name, error) from None

    def _within(self, name: str, error: UsageError) -> UsageError:
        return error.within(f"{self._where} {name}", remedy="see template.toml in voxload/prefetch/machines")

    def _wrong(self, name: str, value: object, expected: str) -> UsageError:
        return UsageError(f"{self._where} {name}", found=repr(value), expected=expected)


def _are_numbers(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    return all(isinstance(each, int | float) and not isinstance(each, bool) and math.isfinite(each) for each in value)
