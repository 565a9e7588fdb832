"""Names: ids of samples, made when they are asked for, since there may be millions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, overload


class Names(Sequence[str]):
    """An immutable sequence of names; equal to others, and to tuples, of the same names.

    Parameters
    ----------
    count
        How many there are.
    name
        Returns the name of an index from 0 on; picklable where this is to be.
    """

    def __init__(self, count: int, name: Callable[[int], str]) -> None:
        self._count, self._name = count, name

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...

    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            return tuple(map(self._name, range(*index.indices(self._count))))
        if not -self._count <= index < self._count:
            raise IndexError(index)
        return self._name(index % self._count)

    def __iter__(self) -> Iterator[str]:
        return map(self._name, range(self._count))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Names | tuple) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self[:3]))
        return f"Names({shown}{', ...' if self._count > 3 else ''})"


_AT_ONCE = 2**16
"""Names that are worked on together."""


class ColumnNames(Names):
    """The names in a column of an Arrow table."""

    def __init__(self, column: Any) -> None:
        super().__init__(len(column), self._at)
        self._column = column

    def __iter__(self) -> Iterator[str]:
        for first in range(0, len(self), _AT_ONCE):
            yield from self._column[first : first + _AT_ONCE].to_pylist()

    def _at(self, index: int) -> str:
        name: str = self._column[index].as_py()
        return name


def digest_of(*lists: Iterable[str]) -> str:
    """Return the SHA-256 of all names, in their order."""
    digest = hashlib.sha256()
    for some in in_lots(f"{name}\0" for name in chain(*lists)):
        digest.update(some)
    return digest.hexdigest()


def in_lots(texts: Iterable[str]) -> Iterator[bytes]:
    """Yield the bytes of many texts, a lot of them at once; also of names of files that are no UTF-8."""
    left = iter(texts)
    while some := "".join(islice(left, _AT_ONCE)):
        yield some.encode(errors="surrogateescape")
