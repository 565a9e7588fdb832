"""House: the shape of the tree of modules, which ``.ci/house.py`` prints."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[2]
FULL = 16
"""Modules of a folder; one that has more says in its ``__init__`` why: "More than 16 modules: ..."."""
REASON = f"More than {FULL} modules:"


@dataclass(frozen=True, slots=True)
class House:
    """The modules of the package, packages' own ``__init__`` left out."""

    lines: dict[Path, int]
    """Lines of each module."""
    circle: tuple[str, ...]
    """Modules of one circle of imports, those for type checkers included; empty where there is none."""

    @classmethod
    def of(cls, package: str) -> House:
        """Look at an installed package and the links in its folder."""
        folder = ROOT / package
        paths = [path for one in (folder, *_linked(folder)) for path in one.resolve().rglob("*.py")]
        lines = {path: path.read_text().count("\n") for path in paths if path.name != "__init__.py"}
        graph = grimp.build_graph(package, cache_dir=None)
        imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
        try:
            TopologicalSorter(imports).prepare()
        except CycleError as error:
            return cls(lines, tuple(error.args[1]))
        return cls(lines, ())

    @property
    def folders(self) -> dict[Path, int]:
        """Modules in each folder."""
        found: defaultdict[Path, int] = defaultdict(int)
        for path in self.lines:
            found[path.parent] += 1
        return dict(found)

    @property
    def full(self) -> dict[Path, int]:
        """Folders of too many modules that give no reason."""
        return {
            folder: count
            for folder, count in self.folders.items()
            if count > FULL and REASON not in (folder / "__init__.py").read_text()
        }


def _linked(folder: Path) -> list[Path]:
    """Return the links to folders beside the package: readers/ and cache/ are of use by themselves."""
    return [path for path in folder.iterdir() if path.is_symlink() and path.is_dir()]
