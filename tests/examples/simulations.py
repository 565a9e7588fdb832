"""A copy of examples/merlin whose simulations fail by a rule, or wait to be killed."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
EVERY, REST = 20, 15
"""Of so many universes the one with this rest cannot be simulated: 10 of the first 200 that are proposed."""
STATUS = 3
"""With which it ends then."""
_SCRIPT = f"""
import os, pathlib, runpy, sys, time
place, index = pathlib.Path(__file__).parent, int(sys.argv[1])
if index % {EVERY} == {REST}:
    sys.exit({STATUS})
try:
    os.rename(place / f"hold_{{index}}", place / f"taken_{{index}}")
except FileNotFoundError:
    pass
else:  # the first time, it waits to be killed, or to be let go when its worker was
    (place / "pid").write_text(str(os.getpid()))
    os.rename(place / "pid", place / f"held_{{index}}")
    while not (place / f"go_{{index}}").exists():
        time.sleep(0.05)
runpy.run_path(str(place / "simulated.py"), run_name="__main__")
"""


class Simulations:
    """The copy, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT / "examples" / "merlin", folder)
        (folder / "simulate.py").rename(folder / "simulated.py")
        (folder / "simulate.py").write_text(_SCRIPT)

    def hold(self, index: int) -> None:
        """Let a simulation wait, the first time that it is begun."""
        (self.folder / f"hold_{index}").touch()

    def held(self, index: int) -> int:
        """Return the process that waits; 0 as long as there is none."""
        place = self.folder / f"held_{index}"
        return int(place.read_text()) if place.exists() else 0

    def let_go(self, index: int) -> None:
        """Let it simulate."""
        (self.folder / f"go_{index}").touch()


def can_be_simulated(index: int) -> bool:
    """Tell whether a universe is not meant to fail."""
    return index % EVERY != REST


def environ(folder: Path, **words: str) -> dict[str, str]:
    """Return the environment of the example's commands, where voxload is installed without what only tests need.

    pyarrow imports pandas wherever it is, which takes longer than a small conversion; `folder` gets what hides it.
    """
    (folder / "hidden").mkdir()
    (folder / "passing").mkdir()  # what is killed leaves there what it would have taken away
    (folder / "hidden" / "pandas.py").write_text("raise ImportError\n")
    found = os.environ | {"PYTHONPATH": f"{folder / 'hidden'}:{ROOT}", "OMP_NUM_THREADS": "1"} | words
    return found | {"PATH": f"{BIN}:{os.environ['PATH']}", "TMPDIR": str(folder / "passing")}
