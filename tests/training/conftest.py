"""Small catalogues to train on: cubes whose mean count says one of their targets, and universes with labels."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.training.stops import single_threaded
from voxload.convert import convert
from voxload.demo.structures import StructureRule, make_structures


@pytest.fixture(scope="session")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the catalogue of sixteen converted cubes of 32^3 x 2."""
    folder = tmp_path_factory.mktemp("training")
    rng = np.random.default_rng(0)
    (folder / "raw").mkdir()
    for index in range(16):
        with h5py.File(folder / "raw" / f"u{index:02}.hdf5", "w") as file:
            level = rng.uniform(-1, 1)
            file["full"] = rng.poisson(20 + 15 * level, (32, 32, 32, 2)).astype(np.int16)
            file["unitPar"] = np.array([level, rng.uniform(-1, 1)], np.float32)
    return convert(folder / "raw", folder / "converted").catalog


@pytest.fixture(autouse=True)
def no_processes_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test whose ranks outlive it; they are known by the folder of their plan."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            assert str(tmp_path) not in process.read_text(errors="replace"), process
    assert not list(tmp_path.glob("voxload-plan-*"))


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Compute on one core, and with the same bits as the tests' processes."""
    with single_threaded():
        yield


@pytest.fixture(scope="session")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the catalogue of eleven universes of 16^3 with labels."""
    rule = StructureRule(smoothing=1.0, quantile=0.8, large=100)
    return make_structures(tmp_path_factory.mktemp("labelled"), count=11, size=16, seed=0, rule=rule)
