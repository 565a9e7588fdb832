"""Print the shape of the tree of modules: circles of imports, full folders, sizes; from the repository's root."""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.house import FULL, ROOT, House


def main() -> None:
    """Print a line for each fact, then each folder with its modules."""
    house = House.of("voxload")
    print(f"circles of imports: {' -> '.join(house.circle) or 0}")
    print(f"folders of more than {FULL} modules without a reason: {len(house.full)}")
    print(f"modules at the root: {house.folders[ROOT / 'voxload']}")
    print(f"median lines of {len(house.lines)} modules: {median(house.lines.values()):g}")
    for folder, count in sorted(house.folders.items()):
        print(f"{count:4d}  {folder.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
