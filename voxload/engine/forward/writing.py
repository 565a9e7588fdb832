"""Writing: which calls of a recording write into volumes, and whether blocks can do the same."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from voxload.engine.forward.recording import Call, Given, Recording, Value, name_of
from voxload.engine.forward.trees import leaves
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

    Blocks of two values share memory in other cases than the whole ones do: where a block has one voxel along an axis,
    it is laid out as its transpose is, and what copies the whole keeps the block. So a value that is written into has
    to be the only one that is used later, and what is a copy in one process is made one here.
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

    def copies(self, call: Call) -> bool:
        """Tell whether a call gives a copy in one process, of which or of whose source something is written into."""
        if call.written or not self._written:
            return False
        taken = {value.storage for value in call.taken}
        return any(value.storage not in taken and self._written & {value.storage, *taken} for value in call.made)

    def refuse(self, index: int, call: Call) -> None:
        """Raise UsageError where what a call writes would not be seen where the whole's forward sees it."""
        first = call.args[0] if call.args else None
        # A view of what is written into counts as written, by its version, and is only read.
        targets = (first,) if is_in_place(call.function) and isinstance(first, Value) else call.written
        others = {
            number
            for value in targets
            for number, (at, storage) in self._made.items()
            if storage == value.storage and at < index < self._last.get(number, -1) and number != value.number
        }
        # What is made whole can be written into a part of what is whole.
        is_lost = isinstance(first, Given) and is_in_place(call.function) and call.function != Tensor.__setitem__
        if others or is_lost:
            raise UsageError(
                f"{name_of(call.function)} in {call.where}",
                found="a write into a volume that is used again under another name, such as a view of it"
                if others
                else "a write of what depends on the volume into a tensor that every rank has whole",
                expected="a volume that has one name when it is written into",
                remedy="compute a new tensor instead",
            )


def is_in_place(function: Any) -> bool:
    """Tell whether a function writes into its first argument, by its name."""
    name = str(getattr(function, "__name__", ""))
    return name in _WRITING or (name.endswith("_") and not name.endswith("__"))


def apart(result: Tensor, sources: list[Tensor]) -> Tensor:
    """Return a result that shares memory with none of `sources`: itself, or a copy."""
    place = result.untyped_storage().data_ptr()
    return result.clone() if any(each.untyped_storage().data_ptr() == place for each in sources) else result
