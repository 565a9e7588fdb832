"""TargetTable: the targets of samples, by name, by number, or the same for all."""

from __future__ import annotations

from collections.abc import Mapping
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
