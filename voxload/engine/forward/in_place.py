"""Writes in place: which calls of a recording write into volumes, and whether blocks can do the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from voxload.engine.forward.recording import Call, Given, Recording, Value, name_of
from voxload.engine.forward.sharding import Sharding
from voxload.engine.model.pytrees import leaves
from voxload.errors import UsageError

_WRITING = frozenset(
    f"__{name}__"
    for name in (
        "setitem",
        "iadd",
        "isub",
        "imul",
        "itruediv",
        "idiv",
        "ifloordiv",
        "imod",
        "ipow",
        "iand",
        "ior",
        "ixor",
    )
)


class Writes:
    """The writes of one recording.

    Blocks of two values share memory in other cases than the whole ones do. Where a block has one voxel along an axis,
    it is laid out as its transpose is, and what copies the whole keeps the block; and what is made whole of a view is a
    copy. So a value that is written into has to be the only one of its memory that is used later, and what is a copy in
    one process is made one here.
    """

    def __init__(self, recording: Recording) -> None:
        made = [(-1, value) for value in recording.given]
        made += [(index, value) for index, call in enumerate(recording.calls) for value in call.made]
        self._made: dict[int, tuple[int, int]] = {}
        for index, value in made:
            self._made.setdefault(value.number, (index, value.storage))
        self._last = {value.number: index for index, call in enumerate(recording.calls) for value in call.taken}
        ends = [value for value in leaves(recording.result) if isinstance(value, Value)]
        self._last |= dict.fromkeys([value.number for value in ends], len(recording.calls))
        self._written = {value.storage for call in recording.calls for value in call.written}
        self._landed: defaultdict[int, set[int]] = defaultdict(set)
        """By storages, the values that were made whole of what is cut: each has memory of its own here."""

    def land(self, values: Iterable[Value]) -> None:
        """Write down what is made whole of what is cut."""
        for value in values:
            self._landed[value.storage].add(value.number)

    def copies(self, call: Call) -> bool:
        """Tell whether a call gives a copy in one process, of which or of whose source something is written into."""
        if call.written or not self._written:
            return False
        taken = {value.storage for value in call.taken}
        return any(value.storage not in taken and self._written & {value.storage, *taken} for value in call.made)

    def gives_back(self, call: Call) -> bool:
        """Tell whether a call gives back in one process what it takes, and something of that is written into."""
        return any(value in call.taken and value.storage in self._written for value in call.made)

    def refuse(self, index: int, call: Call, cuts: Mapping[int, Sharding]) -> None:
        """Raise UsageError where what a call writes would not be seen where the whole's forward sees it."""
        first = call.args[0] if call.args else None
        # A view of what is written into counts as written, by its version, and is only read.
        targets = (first,) if is_in_place(call.function) and isinstance(first, Value) else call.written
        others = {number for value in targets for number in self._others(index, value)}
        if all(cuts[value.number].is_whole for value in call.taken):
            # Plain tensors share memory as in one process, with those that were made of the same one.
            is_one = all(len(self._landed[value.storage]) <= 1 for value in targets)
            others = {number for number in others if not is_one or not cuts[number].is_whole}
            is_lost = False
        else:
            # What is made whole can be written into a part of what is whole.
            is_whole = isinstance(first, Given) or (isinstance(first, Value) and cuts[first.number].is_whole)
            is_lost = is_whole and is_in_place(call.function) and call.function != Tensor.__setitem__
        if others or is_lost:
            raise _refusal(
                call,
                "a write into a volume that is used again under another name, such as a view of it"
                if others
                else "a write of what depends on the volume into a tensor that every rank has whole",
            )

    def _others(self, index: int, value: Value) -> Iterator[int]:
        """Yield the values of the same memory that were made before a call and are used after it."""
        for number, (at, storage) in self._made.items():
            if storage == value.storage and at < index < self._last.get(number, -1) and number != value.number:
                yield number


def refuse_both(call: Call) -> None:
    """Raise UsageError for calls that nothing tells apart, one of which copies, and one gives back what it takes."""
    raise _refusal(call, "a copy of one volume and none of another one, one of which is written into")


def _refusal(call: Call, found: str) -> UsageError:
    return UsageError(
        f"{name_of(call.function)} in {call.where}",
        found=found,
        expected="a volume that has one name when it is written into",
        remedy="compute a new tensor instead",
    )


def is_in_place(function: Any) -> bool:
    """Tell whether a function writes into its first argument, by its name."""
    name = str(getattr(function, "__name__", ""))
    return name in _WRITING or (name.endswith("_") and not name.endswith("__"))


def apart(result: Tensor, sources: list[Tensor]) -> Tensor:
    """Return a result that shares memory with none of `sources`: itself, or a copy."""
    if torch.compiler.is_compiling():
        return result.clone()  # memory has no place yet; the compiler leaves out copies that nobody needs
    place = result.untyped_storage().data_ptr()
    return result.clone() if any(each.untyped_storage().data_ptr() == place for each in sources) else result
