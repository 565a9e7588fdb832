"""SideCars: the table of targets of each raw file: one for all, or one in each folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from voxload.convert.targets.reading import read_targets
from voxload.convert.targets.table import TargetTable
from voxload.errors import NotFoundError
from voxload.regular import check_regular


class SideCars:
    """Tables of targets, each read once; for one thread.

    Parameters
    ----------
    source
        A table's file, the name of a file that lies beside the cubes or in a folder above them, or the targets
        themselves.
    root
        What is converted; nothing is looked for above it.
    """

    def __init__(self, source: Path | Mapping[str, Mapping[str, float]], root: Path) -> None:
        self._name = source if isinstance(source, Path) else Path()
        self._root = root if root.is_dir() else root.parent
        self._found: dict[Path, TargetTable] = {}
        if isinstance(source, Path):
            check_regular(source)
        is_one = not isinstance(source, Path) or source.is_file()
        self._one = read_targets(source) if is_one else None

    def table_of(self, cube: Path) -> TargetTable:
        """Return the table that is nearest to a cube's file; raises NotFoundError where there is none."""
        if self._one is not None:
            return self._one
        folder = cube.parent
        while True:
            path = folder / self._name.name
            if path.is_file():
                if path not in self._found:
                    self._found[path] = read_targets(path)
                return self._found[path]
            if folder.resolve() == self._root.resolve() or folder == folder.parent:
                break
            folder = folder.parent
        raise NotFoundError(
            "--targets",
            found=f"no {self._name}, and no {self._name.name} beside {cube} or above it up to {self._root}",
            expected="a table of targets",
        )
