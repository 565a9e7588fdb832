"""TargetTable: the targets of samples, by name, by number, or the same for all."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from voxload.errors import UsageError

_SHOWN = 3
"""Names that a message shows of a table."""


class TargetTable(Protocol):
    """Where a conversion looks up the targets of its samples."""

    names: tuple[str, ...]
    """Names of the targets, the same for every sample."""

    def find(self, sample: str, *, part: str = "", number: int | None = None) -> dict[str, float]:
        """Return the targets of a sample.

        Parameters
        ----------
        sample
            Its id, or the path that its id is made from.
        part
            Which of several samples in its file it is, such as ``0007``; empty where the file is one sample.
        number
            The number that its folder's name ends in; None where there is none.

        Raises
        ------
        UsageError
            When the table has no targets for the sample, or several.
        """
        ...


class FolderTargets:
    """The same targets for all samples: those of one folder, whose metadata the file is.

    Parameters
    ----------
    targets
        Target name to value.
    """

    def __init__(self, targets: Mapping[str, float]) -> None:
        self.names = tuple(targets)
        self._targets = dict(targets)

    def find(self, sample: str, *, part: str = "", number: int | None = None) -> dict[str, float]:  # noqa: ARG002
        """Return the targets, whatever the sample."""
        return dict(self._targets)


def no_targets(subject: str, sample: str, *, held: str, remedy: str) -> UsageError:
    """Return the error of a table that has no targets for a sample; `held` says what it has."""
    return UsageError(
        f"{subject}", found=f"no targets for sample {sample!r} in {held}", expected="one row for it", remedy=remedy
    )


def listed(names: tuple[str, ...]) -> str:
    """Return the first of some names, for a message.

    >>> listed(("a", "b", "c", "d"))
    "4 samples, 'a', 'b', 'c' and so on"
    """
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    return f"{len(names)} samples, {shown}{' and so on' if len(names) > _SHOWN else ''}"


_LAST_DIGITS = re.compile(r"\d+\Z")


class RowTargets:
    """One row for each number, from 0.

    Parameters
    ----------
    subject
        What error messages name.
    names
        Names of the targets.
    rows
        Their values, row after row.
    """

    def __init__(self, subject: str, names: Sequence[str], rows: Sequence[Sequence[float]]) -> None:
        self.names = tuple(names)
        self._subject = subject
        self._rows = rows

    def find(self, sample: str, *, part: str = "", number: int | None = None) -> dict[str, float]:
        """Return the row of a sample: the number of its part, else that of its folder.

        Raises UsageError when it has neither, or the table no such row.
        """
        row = trailing_number(part) if part else number
        if row is None:
            raise UsageError(
                self._subject,
                found=f"rows without names, and sample {sample!r} without a number",
                expected="a number of a part of a file, or at the end of its folder's name",
                remedy="give the table a column named sample",
            )
        if not 0 <= row < len(self._rows):
            raise no_targets(
                self._subject, sample, held=f"rows 0 to {len(self._rows) - 1}", remedy=f"add row {row} or leave it out"
            )
        return dict(zip(self.names, self._rows[row], strict=True))


def trailing_number(text: str) -> int | None:
    """Return the number that a name ends in, or None.

    >>> trailing_number("LH_0012"), trailing_number("1234"), trailing_number("fiducial")
    (12, 1234, None)
    """
    digits = _LAST_DIGITS.search(text)
    return int(digits[0]) if digits else None


_SUFFIX = re.compile(r"\.[A-Za-z][A-Za-z0-9]*$")
_PACKED = ".gz"


class NamedTargets:
    """One row for each name: a sample's id, its file, or either without folder and suffix.

    Parameters
    ----------
    subject
        What error messages name.
    targets
        Name to target name to value; as many targets for each name.
    """

    def __init__(self, subject: str, targets: Mapping[str, Mapping[str, float]]) -> None:
        self.names = tuple(next(iter(targets.values()), ()))
        self._subject = subject
        self._targets = targets
        self._indices = [(form, _index(form, targets)) for form in (_whole, _as_id, _last)]

    def find(self, sample: str, *, part: str = "", number: int | None = None) -> dict[str, float]:
        """Return the row of a sample: by its whole name first, then by its id, then by the last part of its path.

        A row whose whole name is a number is that of the part, or of the folder, with this number. Raises UsageError
        when there is no row, or when several fit equally well.
        """
        for form, index in self._indices:
            # An id has lost its suffix already: what looks like another one is part of the name, if a row has it too.
            found = index.get(sample) or index.get(form(sample), [])
            if len(found) > 1:
                raise UsageError(
                    self._subject,
                    found=f"several rows for sample {sample!r}: {', '.join(map(repr, found))}",
                    expected="one",
                    remedy="name each row by the whole sample id",
                )
            if found:
                return dict(self._targets[found[0]])
        wanted = trailing_number(part) if part else number
        numbered = [name for name in self._targets if name.isdecimal() and int(name) == wanted]
        if len(numbered) == 1:
            return dict(self._targets[numbered[0]])
        raise no_targets(
            self._subject, sample, held=listed(tuple(self._targets)), remedy="name its row by the sample id"
        )


def _index(form: Callable[[str], str], targets: Mapping[str, object]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in targets:
        found.setdefault(form(name), []).append(name)
    return found


def _whole(name: str) -> str:
    return name


def _as_id(name: str) -> str:
    """Return a path as a sample id: without suffix, with ``_`` for ``/``."""
    return _SUFFIX.sub("", name.removesuffix(_PACKED)).strip("/").replace("/", "_")


def _last(name: str) -> str:
    return _as_id(name.rstrip("/").rsplit("/", 1)[-1])
