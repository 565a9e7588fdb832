"""What README shows runs as it stands there, on the demo's own data."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import nibabel
import numpy as np
import pytest

from tests.support import processes
from voxload.convert import convert
from voxload.demo.universes import make_universes

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
COMMANDS = re.findall(r"^(voxload .*?) *(?:#.*)?$", README, re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with raw and converted universes, under the names of README."""
    place = tmp_path_factory.mktemp("readme")
    make_universes(place / "raw", count=4, size=32, seed=0, workers=1)
    convert(place / "raw", place / "universes")
    return place


def _environ() -> dict[str, str]:
    """Return what a user's shell has set, without what a launcher around the tests has."""
    theirs = ("RANK", "WORLD_SIZE", "PMI", "OMPI", "SLURM", "MASTER_")
    environ = {key: value for key, value in os.environ.items() if not key.startswith(theirs)}
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), environ.get("PYTHONPATH"))))
    return environ


def _run(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Run a script alone."""
    words = [sys.executable, "-c", text]
    return processes.run(words, cwd=folder, env=_environ(), capture_output=True, text=True, check=False)


def _write_cases(folder: Path, count: int) -> None:
    """Write scans and their labels as KiTS19 names them, as many as a held-out part needs."""
    draws = np.random.default_rng(0)
    for number in range(count):
        place = folder / f"case_{number:05d}"
        place.mkdir(parents=True)
        scan = draws.normal(size=(64, 64, 32)).astype(np.float32)
        labels = (scan > 1).astype(np.uint8) + (scan > 2)
        for name, voxels in (("imaging", scan), ("segmentation", labels)):
            image = nibabel.Nifti1Image(voxels, np.eye(4))  # type: ignore[no-untyped-call] # nibabel's
            nibabel.save(image, place / f"{name}.nii.gz")


@pytest.mark.long
@pytest.mark.timeout(4 * processes.LIMIT)
def test_commands_run_in_the_order_in_which_they_are_shown(tmp_path: Path) -> None:
    """Each command does its work on what those before it have left; only the raw data are ours."""
    make_universes(tmp_path / "raw", count=8, size=32, seed=0, workers=1)
    _write_cases(tmp_path / "kits19" / "data", 12)
    assert len(COMMANDS) > 9
    for command in COMMANDS:
        words = [str(Path(sys.executable).with_name("voxload")), *shlex.split(command)[1:]]
        ran = processes.run(words, cwd=tmp_path, env=_environ(), capture_output=True, text=True, check=False)
        assert ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"


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
