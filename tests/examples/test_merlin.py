"""examples/merlin: what is proposed, simulated and appended, without and with Merlin, Redis and Celery."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import yaml

from tests.support import processes
from voxload.catalog import Catalog, note_failures
from voxload.cli.main import run
from voxload.demo.universes import UniverseSpec, unit_parameters

ROOT = Path(__file__).parents[2]
STUDY = ROOT / "examples" / "merlin"


def _python(script: str, *words: object) -> None:
    processes.run([sys.executable, STUDY / script, *map(str, words)], cwd=ROOT)


def test_what_is_proposed_lies_apart(tmp_path: Path) -> None:
    """Universes that nobody has simulated, far from those that are there; none that could not be."""
    _python("propose.py", tmp_path / "none", 6, tmp_path / "first.npy")
    first = np.load(tmp_path / "first.npy")
    assert first.shape == (6, 1)
    universes = tmp_path / "universes"
    universes.mkdir()
    for index in first[:, 0]:
        _python("simulate.py", index, tmp_path / f"universe_{index}.hdf5", "--size", 8)
        words = ["convert", str(tmp_path / f"universe_{index}.hdf5"), str(universes), "--append"]
        assert run(words) == 0
    assert Catalog.read(universes).samples == tuple(sorted(f"universe_{index}" for index in first[:, 0]))
    failed = int(first.max()) + 3
    note_failures(universes, {f"universe_{failed}": "out of memory"})
    _python("propose.py", universes, 6, tmp_path / "second.npy")
    second = np.load(tmp_path / "second.npy")
    assert second.min() > failed
    known = [unit_parameters(UniverseSpec(7, int(index), 2)) for index in first[:, 0]]

    def nearest(indices: range | np.ndarray) -> float:
        places = [unit_parameters(UniverseSpec(7, int(index), 2)) for index in indices]
        return float(np.mean([min(np.linalg.norm(place - other) for other in known) for place in places]))

    assert nearest(second[:, 0]) > nearest(range(failed + 1, failed + 1 + 6 * 8))


def test_the_study_names_what_there_is() -> None:
    """Its commands are those of this version, its columns those that are proposed."""
    study = yaml.safe_load((STUDY / "study.yaml").read_text())
    assert study["merlin"]["samples"]["column_labels"] == ["INDEX"]
    commands = "\n".join(step["run"]["cmd"] for step in study["study"])
    assert "--append" in commands
    assert "--failed" in commands
    assert all((STUDY / name).exists() for name in ("simulate.py", "propose.py"))
    assert shutil.which("voxload", path=str(Path(sys.executable).parent)) is not None
