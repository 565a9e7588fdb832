"""Names: ids of samples, made when they are asked for, since there may be millions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import overload


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
