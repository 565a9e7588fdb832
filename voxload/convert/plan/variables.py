"""Variables: which of the variables that a caller names a raw cube is, and what then names its sample.

Files name variables in two ways. One file holds several volumes, each with a name of its own, or each variable has a
file: ``run7_vx.npy``, ``vx/0001.nii.gz``, ``vx_0001.h5``. Then the variable's name is no part of the sample's.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from voxload.errors import UsageError
from voxload.files.names import safe_dataset

_SEPARATORS = "_.-"
"""Between the words of a file's name."""


@dataclass(frozen=True, slots=True)
class Variables:
    """The variables that a caller names; pure."""

    names: tuple[str, ...]
    """In any order, each once."""

    def of_cube(self, path: str, dataset: str, *, is_alone: bool) -> str:
        """Return the variable that a cube is; empty where it is none.

        The name that the file gives the cube counts first. A file with one volume names it by its own name, of which
        the variable is a word, or a folder.

        Parameters
        ----------
        path
            The file below the folder that is converted, without suffix.
        dataset
            What the file calls the cube.
        is_alone
            Whether the file has no volume of another name.

        Raises
        ------
        UsageError
            When the file's name holds two of them.
        """
        known = {dataset, safe_dataset(dataset)}
        named = next((name for name in self.names if known & {name, safe_dataset(name)}), "")
        if named:
            return named
        if not is_alone:
            return ""
        *folders, last = path.split("/")
        found = self._words(last)
        if len(found) > 1:
            raise UsageError(
                f"{path}",
                found=f"the names of two variables in a file's name, {found[0]!r} and {found[1]!r}",
                expected="one",
                remedy="rename the file, move it away, or name other variables with --stack",
            )
        return next(iter([*found, *(folder for folder in reversed(folders) if folder in self.names)]), "")

    def _words(self, name: str) -> Sequence[str]:
        """Return the variables whose names are words of a file's name, but for those within a longer one's."""
        spans = [(match.start(1), match.end(1)) for one in self.names for match in _word(one).finditer(name)]
        found = {name[lo:hi] for lo, hi in spans if not _is_within((lo, hi), spans)}
        return [one for one in self.names if one in found]


def without_variable(path: str, variable: str) -> str:
    """Return what a path says beside a variable's name; empty where that is nothing.

    >>> without_variable("run7/snap_vx_001", "vx"), without_variable("vx/vx_001", "vx"), without_variable("vx", "vx")
    ('run7/snap_001', '001', '')
    """
    *folders, last = path.split("/")
    first = _word(variable).match(last)
    rest = _word(variable).sub("", last)
    if first is not None and first.start(1) == 0:
        rest = rest[1:]  # the separator behind it
    return "/".join(part for part in (*(folder for folder in folders if folder != variable), rest) if part)


def _word(name: str) -> re.Pattern[str]:
    """Return what finds a name between separators, with the one before it."""
    return re.compile(rf"(?:^|[{_SEPARATORS}])({re.escape(name)})(?=$|[{_SEPARATORS}])")


def _is_within(span: tuple[int, int], spans: Collection[tuple[int, int]]) -> bool:
    lo, hi = span
    return any(first <= lo and hi <= last and (first, last) != span for first, last in spans)
