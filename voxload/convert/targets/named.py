"""NamedTargets: targets whose row names its sample."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from voxload.convert.targets.rows import trailing_number
from voxload.convert.targets.table import listed, no_targets
from voxload.errors import UsageError

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
