"""RowTargets: targets whose row is a sample's number."""

from __future__ import annotations

import re
from collections.abc import Sequence

from voxload.convert.targets.table import no_targets
from voxload.errors import UsageError

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
