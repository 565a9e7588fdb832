"""Attributes: what a file says of itself, or of one of its groups or datasets, in one value.

Names are ``node@attribute``, as in ``Header@Redshift``; ``@Redshift`` is that of the file itself.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from voxload.errors import DataError, UsageError
from voxload.readers.cfpacking import Unread
from voxload.readers.faults import translated
from voxload.readers.registry import find_format
from voxload.readers.storage.stamp import Stamp

AttributeValue = bool | int | float | str | npt.NDArray[Any]
"""Numbers are Python's, arrays int64, float64 or bool."""
_MARK = "@"
_MOST = 2**16
"""Values that are remembered; others are read each time."""
_MOST_INTEGER = np.iinfo(np.int64).max


def is_attribute(name: str) -> bool:
    """Tell whether a name is that of an attribute."""
    return _MARK in name


def read_attribute(path: str, name: str) -> AttributeValue:
    """Read an attribute of a file, or of what is in it; `name` is ``node@attribute``.

    Numbers and truths become Python's, texts str, and arrays of numbers int64, float64 or bool. Safe to call from many
    threads.

    Raises
    ------
    NotFoundError
        When the file, the node or the attribute is not there.
    UsageError
        When the format keeps none, or the value is of another kind or larger than a batch should have.
    DataError
        When the attribute has no value; what opening the file raises.
    """
    node, _, attribute = name.rpartition(_MARK)
    subject = f"{path}:{name}"
    if not attribute:
        raise UsageError(subject, found="no attribute", expected="node@attribute, such as Header@Redshift or @Redshift")
    with translated(path):
        known = find_format(path)
        read = getattr(known, "read_attribute", None)
        if read is None:
            raise UsageError(
                subject,
                found=f"a file of format {known.name}, which keeps no attributes",
                remedy="keep the values in a catalogue: voxload convert writes one",
            )
        return _plain(subject, read(path, node.strip("/"), attribute))


class Attributes:
    """Attributes that were read before; safe to use from many threads. A copy in another process knows nothing."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[Stamp | None, AttributeValue]] = {}

    def __reduce__(self) -> tuple[type[Attributes], tuple[()]]:
        return Attributes, ()

    def of(self, path: str, name: str) -> AttributeValue:
        """Return an attribute, as it was when `learn` last looked; raises as `read_attribute` does."""
        known = self._known.get((path, name))
        return self.learn(path, name) if known is None else known[1]

    def learn(self, path: str, name: str) -> AttributeValue:
        """Return an attribute, read anew where its file is another one than when it was read.

        What a folder or a store says of itself is read once.
        """
        stamp = Stamp.of(path) if os.path.isfile(path) else None  # noqa: PTH113 - a Path takes longer
        known = self._known.get((path, name))
        if known is not None and known[0] == stamp:
            return known[1]
        value = read_attribute(path, name)
        if known is not None or len(self._known) < _MOST:
            # Of a file that was changed just now, two contents may have one stamp: the next look reads it again.
            kept = None if stamp is not None and not stamp.is_settled else stamp
            self._known[path, name] = kept, value
        return value


def _plain(subject: str, value: Any) -> AttributeValue:
    """Return a value as items have it."""
    if value is None:
        raise DataError(subject, found="no value", expected="one", remedy="mend the file, or leave the attribute out")
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if type(value) in (bool, int, float, str):  # numpy's float64 is one of Python's floats too
        return value  # type: ignore[no-any-return]
    if not isinstance(value, Unread):
        numbers = _numbers(value)
        if numbers is not None and not (numbers.dtype.kind == "u" and (numbers > _MOST_INTEGER).any()):
            kinds = {"b": np.bool_, "i": np.int64, "u": np.int64, "f": np.float64}
            plain: npt.NDArray[Any] = numbers.astype(kinds[numbers.dtype.kind])
            return plain if plain.ndim else plain.item()
    raise UsageError(
        subject,
        found=repr(value) if isinstance(value, Unread) else f"a value of type {type(value).__name__}",
        expected="a number, a text, or a few numbers",
        remedy="keep the values in a catalogue: voxload convert writes one",
    )


def _numbers(value: Any) -> npt.NDArray[Any] | None:
    """Return an array of what is, or lists, numbers of one kind; None for anything else."""
    if isinstance(value, np.ndarray | np.generic):
        found = np.asarray(value)
    elif isinstance(value, Sequence) and _are_numbers(value):
        try:
            found = np.array(value)
        except ValueError:  # lists of unequal lengths
            return None
    else:
        return None
    return found if found.dtype.kind in "biuf" else None


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(
        isinstance(one, bool | int | float) or (isinstance(one, list | tuple) and _are_numbers(one)) for one in values
    )
