"""docs/guides/moving.md: the programs before and after give the same batches, bit for bit."""

from __future__ import annotations

import ast
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import h5py
import nibabel
import numpy as np
import pytest
import torch

from tests.support import processes
from tests.support.settled import settle
from voxload.convert import convert

pytestmark = pytest.mark.long  # programs of five frameworks, twice each
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guides" / "moving.md"
PROGRAM = re.compile(r"^```python title=\"(?P<title>[^\"]+)\"\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAMS = {match["title"]: match["text"] for match in PROGRAM.finditer(PAGE.read_text(encoding="utf-8"))}
NOT_RUN = ", not run here"
PAIRS = ("torch and h5py", "CacheDataset", "PersistentDataset")
SHARED = "ranks that share a sample"
ALONE = {"LBANN": 2, "NoPFS": 1, "DALI": 2, "PhysicsNeMo": 2, "The Well": 1}
"""Programs whose counterparts are not run, and the ranks of the world that they run in."""
SAMPLES, SIZE, RANKS = 5, 16, 4
Voxels = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all data that the page's programs name, and the programs."""
    folder = tmp_path_factory.mktemp("moving")
    rng = np.random.default_rng(0)
    for name in ("raw", "lbann", "npy", "well/train"):
        (folder / name).mkdir(parents=True)
    for index in range(SAMPLES):
        volume = rng.poisson(20, (2, SIZE, SIZE, SIZE)).astype(np.int16)
        target = rng.uniform(-1, 1, 4).astype(np.float32)
        for place, stored in (("raw", np.moveaxis(volume, 0, -1)), ("lbann", volume)):
            with h5py.File(folder / place / f"{index}.hdf5", "w") as file:
                file.create_dataset("full", data=stored, chunks=True, compression="gzip")
                file["unitPar"] = target
        np.save(folder / "npy" / f"{index}.npy", volume[:1])
        scan = folder / "scans" / f"case_{index:05}"
        scan.mkdir(parents=True)
        image = rng.integers(-200, 400, (8, 10, 12)).astype(np.int16)
        for kind, voxels in (("imaging", image), ("segmentation", (image > 100).astype(np.uint8))):
            made = nibabel.Nifti1Image(voxels, np.eye(4))  # type: ignore[no-untyped-call] # nibabel's
            nibabel.save(made, scan / f"{kind}.nii.gz")
    with h5py.File(folder / "well" / "train" / "0.hdf5", "w") as file:
        file["t0_fields/density"] = rng.random((2, 4, 8, 8, 8), np.float32)
        file["t1_fields/velocity"] = rng.random((2, 4, 8, 8, 8, 3), np.float32)
    convert(folder / "scans", folder / "converted")
    for title, text in PROGRAMS.items():
        (folder / f"{title}.py").write_text(text, encoding="utf-8")
    settle(folder)
    return folder


def _case(*titles: str, rank: int = 0, world: int = 1, epochs: int = 1) -> dict[str, Any]:
    return {"programs": [f"{title}.py" for title in titles], "rank": rank, "world": world, "epochs": epochs}


def _both(name: str) -> Sequence[str]:
    return f"before: {name}", f"after: {name}"


@pytest.fixture(scope="module")
def told(folder: Path) -> dict[str, dict[str, Any]]:
    """Run all programs in one process, which imports what they need once, and return what is told of their batches."""
    cases = {name: _case(*_both(name), epochs=2) for name in PAIRS}
    cases |= {f"{SHARED} {rank}": _case(*_both(SHARED), rank=rank, world=RANKS) for rank in range(RANKS)}
    cases |= {name: _case(f"after: {name}", rank=ranks - 1, world=ranks) for name, ranks in ALONE.items()}
    cases["others"] = _case("after: LBANN", "after: PhysicsNeMo", rank=0, world=2)
    cases["types"] = _case("after: NoPFS", "after: torch and h5py")
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("compares.py"))]
    environ = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    words: dict[str, Any] = {"check": False, "capture_output": True, "text": True, "cwd": folder, "env": environ}
    done = processes.run(command, input=json.dumps(cases), **words)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_all_programs_are_known() -> None:
    """Each on the page is run, or is marked as one that is not, and is Python."""
    pairs = {title for name in (*PAIRS, SHARED) for title in _both(name)}
    others = {f"after: {name}" for name in ALONE} | {f"before: {name}{NOT_RUN}" for name in ALONE}
    assert set(PROGRAMS) == pairs | others
    for text in PROGRAMS.values():
        ast.parse(text)


@pytest.mark.parametrize("name", PAIRS)
def test_batches_are_the_same(told: dict[str, dict[str, Any]], name: str) -> None:
    """Over two epochs, whose orders differ."""
    assert told[name] == {"same": True, "epochs differ": True, "batches": 2 * -(-SAMPLES // 2)}


@pytest.mark.parametrize("rank", range(RANKS))
def test_each_rank_gets_its_half(told: dict[str, dict[str, Any]], rank: int) -> None:
    """Of the samples of its group, which are padded to as many as the other group's."""
    groups = RANKS // 2
    assert told[f"{SHARED} {rank}"] == {"same": True, "epochs differ": False, "batches": -(-SAMPLES // groups // 2)}


def test_batches_that_differ_are_seen(told: dict[str, dict[str, Any]]) -> None:
    """Where the same voxels come in another type or number."""
    assert told["others"]["same"], "the same program in other words"
    assert not told["types"]["same"], "int16 and float32, and one without the last batch"


def _hdf5(folder: Path) -> list[list[Voxels]]:
    found = []
    for path in sorted((folder / "lbann").glob("*.hdf5")):
        with h5py.File(path) as file:
            found.append([file["full"][...], file["unitPar"][...]])
    return found


def _halves(folder: Path) -> list[list[Voxels]]:
    return [[volume[:, SIZE // 2 :].astype(np.float32), target] for volume, target in _hdf5(folder)]


def _npy(folder: Path) -> list[list[Voxels]]:
    paths = sorted((folder / "npy").glob("*.npy"))
    return [[np.load(path)[:, SIZE // 2 :].astype(np.float32)] for path in paths]


def _windows(folder: Path) -> list[list[Voxels]]:
    with h5py.File(folder / "well" / "train" / "0.hdf5") as file:
        density, velocity = file["t0_fields/density"][...], file["t1_fields/velocity"][...]
    fields = (density[:, :, None], np.moveaxis(velocity, -1, 2))
    steps = [(slice(first, first + 2), slice(first + 2, first + 3)) for first in range(2)]
    return [[field[series, part] for part in parts for field in fields] for series in range(2) for parts in steps]


STORED: dict[str, Callable[[Path], list[list[Voxels]]]] = {
    "LBANN": _halves,
    "NoPFS": _hdf5,
    "DALI": _npy,
    "PhysicsNeMo": _halves,
    "The Well": _windows,
}


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize("name", ALONE)
def test_programs_after_give_what_is_stored(folder: Path, name: str) -> None:
    """The last rank's blocks of all samples, by plain reads; NoPFS's drops the last batch."""
    (batches,) = torch.load(folder / f"{name}.pt")
    items = [item for batch in batches for item in zip(*batch, strict=True)]
    got = {b"".join(part.numpy().tobytes() for part in item) for item in items}
    wanted = {b"".join(part.tobytes() for part in item) for item in STORED[name](folder)}
    assert got <= wanted
    assert len(got) == (len(wanted) - 1 if name == "NoPFS" else len(wanted))
