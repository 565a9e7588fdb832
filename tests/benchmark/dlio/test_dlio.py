"""DLIO itself, run with voxload's plug-ins; skipped where dlio_benchmark is not installed."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.dlio import AGREEMENT, DlioError, Interpreter, Run, figures, generate, launch
from voxload.benchmark.dlio.journal import read_records

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("dlio_benchmark") is None, reason="dlio_benchmark is not installed"),
    pytest.mark.timeout(900),  # each run of DLIO imports TensorFlow first
]

INTERPRETER = Interpreter(Path(sys.executable))
FILES, SIZE, EPOCHS = 24, 2**20, 2
WORDS: dict[str, Any] = {
    "dataset.num_files_train": FILES,
    "dataset.record_length": SIZE,
    "dataset.record_length_stdev": 0,
    "dataset.generation_buffer_size": SIZE,
    "reader.batch_size": 1,
    "reader.read_threads": 1,
    "train.computation_time": 0.1,
    "train.epochs": EPOCHS,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with files that DLIO wrote."""
    folder = tmp_path_factory.mktemp("dlio")
    generate(INTERPRETER, Run("unet3d_voxload", WORDS), folder)
    return folder


@pytest.mark.parametrize("ranks", [1, 2])
def test_dlio_and_the_plugin_find_the_same_utilisation(data: Path, ranks: int) -> None:
    """Both figures agree, and every sample is read once an epoch."""
    output = launch(INTERPRETER, Run("unet3d_voxload", WORDS, ranks), data, output=f"ranks-{ranks}")
    found = figures(output, is_ours=True)
    assert found.difference is not None
    assert abs(found.difference) <= AGREEMENT
    records = read_records(output)
    assert [record.rank for record in records] == list(range(ranks))
    for record in records:
        assert [epoch.steps.samples for epoch in record.epochs] == [(1,) * (FILES // ranks)] * EPOCHS
    assert sum(sum(record.epochs[0].steps.nbytes) for record in records) == FILES * SIZE


def test_ranks_share_samples_with_a_spatial_split(data: Path) -> None:
    """Each of two ranks reads half of every sample, in DLIO's number of steps."""
    options = {"VOXLOAD_DLIO_SPATIAL": "1x1x2"}
    output = launch(INTERPRETER, Run("unet3d_voxload", WORDS, 2, options), data, output="split")
    records = read_records(output)
    assert [record.epochs[0].steps.samples for record in records] == [(2,) * (FILES // 2)] * 2
    assert [sum(record.epochs[0].steps.nbytes) for record in records] == [FILES * SIZE // 2] * 2
    difference = figures(output, is_ours=True).difference
    assert difference is not None
    assert abs(difference) <= AGREEMENT


def test_the_iterative_sampler_lists_every_sample(data: Path) -> None:
    """The files that DLIO shuffles itself are all read."""
    words = WORDS | {"reader.data_loader_sampler": "iterative", "reader.read_threads": 2}
    output = launch(INTERPRETER, Run("unet3d_voxload", words), data, output="iterative")
    [record] = read_records(output)
    assert [sum(epoch.steps.samples) for epoch in record.epochs] == [FILES] * EPOCHS


def test_the_reader_serves_dlios_own_loader(data: Path) -> None:
    """DLIO's worker processes read every batch by voxload."""
    words = WORDS | {
        "reader.data_loader_classname": None,
        "reader.reader_classname": "voxload.benchmark.dlio.reader.VoxloadReader",
    }
    output = launch(INTERPRETER, Run("unet3d_voxload", words), data, output="reader")
    steps = json.loads((output / "0_output.json").read_text(encoding="utf-8"))["2"]["proc"]["block1"]
    assert len(steps) == FILES
    assert "Discovered custom data reader VoxloadReader" in (output / "dlio.log").read_text(encoding="utf-8")


def test_several_samples_in_npy_files_are_read(tmp_path: Path) -> None:
    """Each sample of a file is read by itself."""
    words = WORDS | {"dataset.format": "npy", "dataset.num_samples_per_file": 3, "dataset.num_files_train": 4}
    generate(INTERPRETER, Run("cosmoflow_voxload", words), tmp_path)
    output = launch(INTERPRETER, Run("cosmoflow_voxload", words), tmp_path, output="npy")
    [record] = read_records(output)
    assert sum(record.epochs[1].steps.nbytes) == 4 * 3 * SIZE


def test_formats_that_voxload_does_not_read_are_refused(data: Path, tmp_path: Path) -> None:
    """DLIO ends with the error that says what to do."""
    stored = next((data / "data").rglob("*.hdf5"))
    place = tmp_path / "data" / "unet3d_voxload" / "train"
    place.mkdir(parents=True)
    place.with_name("valid").mkdir()
    shutil.copy(stored, place / "img_0_of_1.npz")
    words = WORDS | {"dataset.format": "npz", "dataset.num_files_train": 1}
    with pytest.raises(DlioError, match=r"workload\.dataset\.format: found npz"):
        launch(INTERPRETER, Run("unet3d_voxload", words), tmp_path, output="refused")
