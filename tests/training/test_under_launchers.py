"""``voxload train`` and ``infer`` as the ranks that torchrun or mpiexec started: one run, not one a process."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.ranks import printed_by_ranks
from tests.training.stops import REGRESSION, regression, train_on_ranks
from voxload.cli.main import run
from voxload.training.checkpoint import CHECKPOINT
from voxload.training.result import WEIGHTS, TrainingResult

BIN = Path(sys.executable).parent
TRAINING = ["--epochs", "1", "--batch-size", "2", "--validation", "0.25", "--dtype", "float32", "--json"]
LAUNCHERS = {
    "torchrun": [str(BIN / "torchrun"), "--standalone", "--nproc-per-node", "2", "--no-python"],
    "mpiexec": [str(BIN / "mpiexec"), "-n", "2"],
}


def _run(launcher: str, words: list[str]) -> subprocess.CompletedProcess[str]:
    """Run ``voxload`` as two ranks; what a launcher around the tests has set is taken away."""
    theirs = ("RANK", "WORLD_SIZE", "PMI", "OMPI", "SLURM", "LOCAL_", "GROUP_", "TORCHELASTIC", "MASTER_")
    environ = {key: value for key, value in os.environ.items() if not key.startswith(theirs)}
    command = [*LAUNCHERS[launcher], str(BIN / "voxload"), *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=False, env=environ | {"OMP_NUM_THREADS": "1"}
    )


@pytest.mark.parametrize(
    "launcher", ["torchrun's environment", *(pytest.param(n, marks=pytest.mark.long) for n in LAUNCHERS)]
)
def test_ranks_of_a_launcher_share_one_run(catalog: Path, tmp_path: Path, launcher: str) -> None:
    """Two ranks share each sample, one of them prints, and the figures are those of ranks that voxload starts."""
    words = ["train", str(catalog), "--spatial", "2,1,1", *TRAINING, "--output", str(tmp_path / "ranks")]
    if launcher in LAUNCHERS:
        ran = _run(launcher, words)
        assert ran.returncode == 0, ran.stderr
        printed = ran.stdout
    else:
        (tmp_path / "program.py").write_text("from voxload.cli.start import main\nmain()\n")
        printed = printed_by_ranks(tmp_path / "program.py", *words, ranks=2)
    (line,) = [line for line in printed.splitlines() if line.startswith("{")]
    found = TrainingResult.from_json(line)
    assert [rank.coords for rank in found.ranks] == [(0, 0, 0), (1, 0, 0)]
    assert {path.name for path in (tmp_path / "ranks").iterdir()} >= {WEIGHTS, CHECKPOINT, "result.json"}
    recipe = replace(REGRESSION, epochs=1, batch_size=2, dtype="float32")
    plan = regression(str(catalog), tmp_path / "own", spatial=(2, 1, 1), optimisation=recipe)
    wanted, _ = train_on_ranks(plan, 2)
    assert [epoch.training_loss for epoch in found.epochs] == [epoch.training_loss for epoch in wanted.epochs]


@pytest.fixture
def one_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be the second of two ranks that mpiexec started, as the environment says; nothing is said to the other one."""
    monkeypatch.setenv("PMI_RANK", "1")
    monkeypatch.setenv("PMI_SIZE", "2")


@pytest.mark.usefixtures("one_of_two")
def test_processes_besides_those_of_a_launcher_are_refused(
    catalog: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each rank would start a run of its own, into the same folder."""
    assert run(["train", str(catalog), "--nproc", "2", "--output", str(tmp_path / "out")]) == 2
    assert "--nproc: found 2 under a launcher of 2 ranks" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("one_of_two")
def test_a_grid_that_does_not_fit_the_launched_ranks_is_refused(
    catalog: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error counts the ranks that there are."""
    assert run(["infer", str(catalog), "--checkpoint", str(tmp_path), "--spatial", "3,1,1"]) == 2
    assert "found 2 ranks for blocks of 3 ranks a sample" in capsys.readouterr().err
