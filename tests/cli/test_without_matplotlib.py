"""The core without the extra `plots`: matplotlib is blocked in a process and in all that it starts."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tests.support import processes

pytestmark = pytest.mark.long  # `make wheel` runs the core where there is no matplotlib
ROOT = Path(__file__).parents[2]
REMEDY = 'pip install "voxload[plots]"'
_BLOCK = 'import sys\nsys.modules["matplotlib"] = None\n'
_PROGRAM = """
import contextlib, importlib, io, json, pkgutil, sys
import voxload
from voxload.cli.main import run

told = {}
for call in sys.argv[1:]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = run(call.split())
    told[call] = [status, out.getvalue(), err.getvalue()]
imported = {}
for found in pkgutil.walk_packages(voxload.__path__, "voxload.", onerror=lambda _: None):
    try:
        importlib.import_module(found.name)
    except ImportError as error:
        imported[found.name] = str(error)
print(json.dumps({"told": told, "imported": imported, "matplotlib": sys.modules["matplotlib"]}))
"""
CONVERT = "convert raw universes"
INFO = "info universes/u0.zarr --spatial 2,1,1"
PLANES = "info universes/u0.zarr --plot planes.png"
TRAIN = "train universes --epochs 1 --spatial 1,1,1 --nproc 1 --validation 0.25 --output trained"
RUN = "bench run universes --threads 1 --repeats 1 --output result.json"
REPORT = "bench report result.json --output report.html"
REFUSED = {
    PLANES: "--plot",
    "simulate --machine lassen --samples 64 --sample-bytes 1MB --plot policies.png": "--plot",
    "plan cosmoflow --sample 4,32,32,32 --ranks 1 --machine lassen --plot plan.png": "--plot",
    "bench report result.json --output drawn.html --png plots": "--png",
    "demo --universes 16 --epochs 1": "demo",
}
"""Calls that ask for pictures, and what their errors begin with."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a few raw universes."""
    place = tmp_path_factory.mktemp("without")
    (place / "raw").mkdir()
    draws = np.random.default_rng(0)
    for number in range(4):
        with h5py.File(place / "raw" / f"u{number}.hdf5", "w") as file:
            file["full"] = draws.integers(0, 99, (32, 32, 32, 4)).astype(np.int16)
            file["unitPar"] = draws.uniform(-1, 1, 4)
    return place


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Any]:
    """Return what calls of one process end with and print, and what cannot be imported there."""
    blocked = folder / "blocked"
    blocked.mkdir()
    (blocked / "sitecustomize.py").write_text(_BLOCK)
    paths = os.pathsep.join(filter(None, (str(blocked), str(ROOT), os.environ.get("PYTHONPATH"))))
    calls = (CONVERT, INFO, TRAIN, RUN, REPORT, *REFUSED)
    words = [sys.executable, "-c", _PROGRAM, *calls]
    done = processes.run(
        words, cwd=folder, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert told["matplotlib"] is None
    return told


def test_every_module_is_imported(found: dict[str, Any]) -> None:
    """What draws takes matplotlib when it draws: no module needs it to be imported."""
    assert [name for name, error in found["imported"].items() if "matplotlib" in error] == []


def test_what_draws_nothing_works(found: dict[str, Any], folder: Path) -> None:
    """Conversion, figures of a file, training and benchmarks give all but pictures."""
    for call in (CONVERT, INFO, RUN):
        status, _, errors = found["told"][call]
        assert (status, REMEDY in errors) == (0, False), errors
    assert "throughput" in found["told"][RUN][1]
    assert (folder / "universes" / "catalog.parquet").is_file()


def test_training_says_what_is_missing(found: dict[str, Any], folder: Path) -> None:
    """Weights, result and tables are there; pictures can be had later, and how is said."""
    status, printed, errors = found["told"][TRAIN]
    assert status == 0, errors
    said = " ".join(printed.split())
    assert "Weights and result are in trained/; no pictures: found import of matplotlib halted" in said
    assert REMEDY in said
    assert "Learning, per epoch" in said
    assert {path.name for path in (folder / "trained").iterdir()} >= {"model.pt", "result.json"}
    assert not list(folder.rglob("*.png"))


def test_a_report_has_its_tables(found: dict[str, Any], folder: Path) -> None:
    """The page says where plots would stand why there are none; so does the terminal."""
    status, printed, errors = found["told"][REPORT]
    assert status == 0, errors
    assert "It has no plots: plots: found import of matplotlib halted" in printed
    page = (folder / "report.html").read_text()
    assert "throughput" in page
    assert "There are none: plots: found import of matplotlib halted" in page
    assert "<svg" not in page


@pytest.mark.parametrize("call", REFUSED)
def test_what_asks_for_pictures_is_refused_at_once(call: str, found: dict[str, Any], folder: Path) -> None:
    """Status 2 and one line with the remedy, before anything is read, made or written."""
    status, printed, errors = found["told"][call]
    assert (status, printed) == (2, "")
    assert errors.startswith(f"voxload: {REFUSED[call]}: found import of matplotlib halted")
    assert errors.endswith(f"{REMEDY}\n")
    assert not (folder / "drawn.html").exists()
    assert not list(folder.glob("demo-data/*"))
