"""examples/slurm: an array's tasks as Slurm runs them, several at once; one is killed, and some cannot be made."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.examples.simulations import EVERY, REST, ROOT, STATUS, Simulations, environ
from tests.serve.conftest import until
from tests.support import processes
from voxload import VolumeDataset
from voxload.catalog import Catalog, read_failures
from voxload.catalog.generations import generation_of
from voxload.demo.universes import Universe, UniverseSpec

FAILS = REST
DIES = REST + 1
TASKS = (FAILS - 1, FAILS, DIES, FAILS + EVERY)
SIZE = 8


def test_tasks_of_an_array_append_what_they_simulate(tmp_path: Path) -> None:
    """Each is a row, also that whose task was killed and queued again; those that fail are noted, with why."""
    simulations, universes = Simulations(tmp_path / "merlin"), tmp_path / "universes"
    shutil.copytree(ROOT / "examples" / "slurm", tmp_path / "slurm")
    simulations.hold(DIES)
    command = ["bash", "universes.sh", str(universes), str(SIZE)]
    there = environ(tmp_path, SLURM_ARRAY_JOB_ID="4711")
    with ExitStack() as ending:
        tasks = {}
        for task in TASKS:
            words: dict[str, Any] = {
                "cwd": tmp_path / "slurm",
                "env": there | {"SLURM_ARRAY_TASK_ID": str(task)},
                "stdout": subprocess.DEVNULL,
            }
            tasks[task] = ending.enter_context(processes.started(command, **words))
        until(lambda: simulations.held(DIES))
        processes.end({tasks[DIES].pid} | processes.descendants(tasks[DIES].pid))
        found = {task: process.wait(processes.LIMIT) for task, process in tasks.items() if task != DIES}
    assert found == {task: STATUS if task % EVERY == REST else 0 for task in found}
    assert f"universe_{DIES}" not in Catalog.read(universes).samples
    for task in (DIES, TASKS[0]):  # one that was done is queued again, too
        words = {"cwd": tmp_path / "slurm", "env": there | {"SLURM_ARRAY_TASK_ID": str(task)}}
        processes.run(command, **words, stdout=subprocess.DEVNULL)
    made = [task for task in TASKS if task % EVERY != REST]
    catalog = Catalog.read(universes)
    assert list(catalog.samples) == [f"universe_{task}" for task in made]
    assert generation_of(catalog) == len(catalog) == len(made)
    why = {task: f"task {task} of 4711: simulate.py ended with status {STATUS}" for task in TASKS if task not in made}
    assert read_failures(universes) == {f"universe_{task}": words for task, words in why.items()}
    data = VolumeDataset(universes)
    for place, task in enumerate(made):
        drawn = Universe.draw(UniverseSpec(seed=7, index=task, size=SIZE))
        volume, *_ = data[place]
        np.testing.assert_array_equal(np.asarray(volume), np.moveaxis(drawn.counts, -1, 0))


@pytest.mark.long
def test_training_is_taken_up(tmp_path: Path) -> None:
    """The job that learns meanwhile goes on where there is a checkpoint."""
    shutil.copytree(ROOT / "examples" / "slurm", tmp_path / "slurm")
    command = ["bash", "train.sh", str(tmp_path / "none"), "--epochs", "2"]
    there = environ(tmp_path)
    for is_again in (False, True):
        if is_again:
            (tmp_path / "slurm" / "learnt").mkdir()
            (tmp_path / "slurm" / "learnt" / "checkpoint.pt").touch()
        done = processes.run(command, cwd=tmp_path / "slurm", env=there, check=False, capture_output=True, text=True)
        assert done.returncode
        assert ("checkpoint" in done.stderr) is is_again, done.stderr
