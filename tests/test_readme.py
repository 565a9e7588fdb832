"""What README shows runs as it stands there, on the demo's own data."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from voxload.convert import convert
from voxload.demo.universes import make_universes

ROOT = Path(__file__).parents[1]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with raw and converted universes, under the names of README."""
    place = tmp_path_factory.mktemp("readme")
    make_universes(place / "raw", count=4, size=32, seed=0, workers=1)
    convert(place / "raw", place / "universes")
    return place


def _run(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Run a script alone, without what a launcher around the tests has set."""
    theirs = ("RANK", "WORLD_SIZE", "PMI", "OMPI", "SLURM", "MASTER_")
    environ = {key: value for key, value in os.environ.items() if not key.startswith(theirs)}
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), environ.get("PYTHONPATH"))))
    return subprocess.run(
        [sys.executable, "-c", text], cwd=folder, env=environ, capture_output=True, text=True, timeout=600, check=False
    )


def test_blocks_are_loaded_as_shown(folder: Path) -> None:
    """The first script, and the one on raw files behind it: alone it holds whole samples, and says so."""
    loading = next(block for block in BLOCKS if "from_env" in block)
    raw = next(block for block in BLOCKS if "raw/*.hdf5" in block)
    ran = _run(folder, f"{loading}\nprint(tuple(x.shape))\n{raw}\nprint(tuple(data[0][0].shape))")
    assert ran.returncode == 0, ran.stderr
    assert "this process holds whole samples" in ran.stderr
    utilisation, batch, block = ran.stdout.splitlines()
    assert 0 <= float(utilisation) <= 1
    assert batch == "(2, 4, 34, 34, 34)"
    assert block == "(4, 32, 32, 32)"
