"""deploy/ on a cluster of one node: a Slurm of this test's own, and Kubernetes as its schemas have it."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.serve.conftest import until
from tests.support import processes
from tests.support.others import acting_as, folder_of_all, program_of_all
from tests.support.settled import settle

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("no_leaks")]
ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PROGRAM = Path(sys.executable).parent / "voxload"
USER = int(os.environ["VOXLOAD_TEST_USERS"].partition(",")[0]) if "VOXLOAD_TEST_USERS" in os.environ else None
KUBERNETES = ("1.28", "1.32", "1.37")
SAMPLES, TASKS = 12, 2
CONFIGURATION = """
ClusterName=voxload
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={folder}/munge
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SchedulerParameters=bf_interval=1
BurstBufferType=burst_buffer/lua
TaskProlog={deploy}/slurm/prolog.sh
Epilog={deploy}/slurm/epilog.sh
NodeName={host} NodeAddr=127.0.0.1 CPUs=2
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE
"""
TASK = """
import json, os, subprocess, sys
import torch, voxload

folder, program = sys.argv[1:]
service = os.environ.get("VOXLOAD_SERVICE")
shuffled = torch.Generator().manual_seed(int(os.environ["SLURM_PROCID"]))
data = voxload.VolumeDataset(f"{folder}/*.npy", axes="CDHW")
cache = None if service is None else voxload.Cache(service="auto")
seen = []
loader = voxload.DataLoader(data, shuffle=True, num_workers=2, cache=cache, generator=shuffled)
for batch in loader:
    sample = batch if isinstance(batch, torch.Tensor) else batch[0]
    assert bool((sample == sample.flatten()[0]).all())
    seen.append(int(sample.flatten()[0]))
served = loader.stats().sources.get("service")
loader.close()
status = [program, "serve", "status", "--json", "--socket", service or "/"]
told = json.loads(subprocess.run(status, check=True, capture_output=True).stdout) if service else None
said = {
    "service": service,
    "seen": sorted(seen),
    "served": 0 if served is None else served.fetches,
    "reads": None if told is None else told["reads"]["done"],
}
print(json.dumps(said), flush=True)
"""


@pytest.mark.parametrize("manifest", sorted(path.name for path in (DEPLOY / "kubernetes").glob("*.yaml")))
def test_manifests_by_the_schemas_of_kubernetes(manifest: str) -> None:
    """Of releases old and new, with no field that they do not know; of an operator's kind, its pods."""
    kubernetes, yaml = import_module("kubernetes_validate"), import_module("yaml")
    found = list(yaml.safe_load_all((DEPLOY / "kubernetes" / manifest).read_text()))
    for one in [each for given in found for each in _known(given)]:
        for version in KUBERNETES:
            kubernetes.validate(one, version, strict=True)
        with pytest.raises(kubernetes.ValidationError):
            kubernetes.validate({**one, "voxels": 1}, KUBERNETES[-1], strict=True)


def _known(one: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what the schemas of Kubernetes know of a manifest."""
    if one["kind"] != "PyTorchJob":
        return [one]
    templates = [each["template"] for each in one["spec"]["pytorchReplicaSpecs"].values()]
    head = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": one["metadata"]["name"]}}
    return [{**head, "template": template} for template in templates]


class Slurm:
    """A cluster of this node."""

    def __init__(self, stack: ExitStack, folder: Path, program: Path) -> None:
        self._folder = folder
        host = socket.gethostname().partition(".")[0]
        ports = [_free() for _ in range(2)]
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "VOXLOAD_PROGRAM": str(program)}
        for name in ("state", "spool"):
            (folder / name).mkdir()
        (folder / "slurm.conf").write_text(CONFIGURATION.format(host=host, folder=folder, ports=ports, deploy=DEPLOY))
        (folder / "burst_buffer.conf").write_text("")
        shutil.copy(DEPLOY / "slurm" / "burst_buffer.lua", folder)
        key = folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(1024))
        options = {"key-file": key, "socket": folder / "munge", "pid-file": folder / "munge.pid"}
        options |= {"log-file": folder / "munge.log", "seed-file": folder / "munge.seed"}
        munge = ["munged", "--foreground", "--force", *(f"--{name}={path}" for name, path in options.items())]
        self._start(stack, munge)
        until((folder / "munge").exists)
        self._start(stack, ["slurmctld", "-D", "-f", str(folder / "slurm.conf")])
        self._start(stack, ["slurmd", "-D", "-N", host, "-f", str(folder / "slurm.conf")])
        until(lambda: "idle" in self.run("sinfo", "--noheader", "--format=%T", check=False))

    def run(self, *command: str, check: bool = True) -> str:
        """Run a command of Slurm's, and return what it prints."""
        done = processes.run(
            command, check=False, capture_output=True, text=True, env=self.environment, cwd=self._folder
        )
        assert not check or done.returncode == 0, done.stderr
        return str(done.stdout)

    def job(self, lines: str, folder: Path, *, user: int | None = None, memory: str = "") -> list[str]:
        """Run a job's script in a folder of a user's, root by default, and return the lines that it prints.

        `memory` is what it asks of a service of its own.
        """
        script, output = folder / "job.sh", folder / "job.out"
        script.write_text(f"#!/bin/sh\n{lines}\n")
        # Not every user may write to that of the tests.
        words = "ALL,TMPDIR=/tmp" + (f",VOXLOAD_SERVE_MEMORY={memory}" if memory else "")
        command = ["sbatch", "--wait", f"--ntasks={TASKS}", f"--export={words}", f"--output={output}", str(script)]
        command = [*([] if user is None else acting_as(user)), *command]
        # How the job ended is its status: what it printed says more.
        done = processes.run(command, check=False, capture_output=True, text=True, env=self.environment, cwd=folder)
        assert output.exists(), f"{done.stderr}{self.log()}"
        return output.read_text().splitlines()

    def log(self) -> str:
        """Return what the daemons have said."""
        return "".join(path.read_text() for path in self._folder.glob("*.log"))

    def _start(self, stack: ExitStack, command: list[str]) -> None:
        stack.enter_context(
            processes.started(command, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        )


def _free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@pytest.fixture
def place() -> Iterator[Path]:
    """Yield a folder into which all users may look."""
    with folder_of_all() as folder:
        yield folder


@pytest.fixture
def slurm(place: Path) -> Iterator[Slurm]:
    """Yield a cluster."""
    folder = place / "slurm"
    folder.mkdir()
    with ExitStack() as stack:
        yield Slurm(stack, folder, program_of_all(place) or PROGRAM)


@pytest.fixture
def samples(place: Path) -> Path:
    """Return a folder of samples."""
    folder = place / "samples"
    folder.mkdir()
    for number in range(SAMPLES):
        np.save(folder / f"{number:02}.npy", np.full((1, 8, 8, 8), number, np.float32))
    settle(folder)
    return folder


def tasks(slurm: Slurm, samples: Path, place: Path, memory: str = "") -> list[dict[str, Any]]:
    """Return what the tasks of a job say."""
    task = place / "task.py"
    task.write_text(TASK)
    command = f"srun {sys.executable} -W ignore {task} {samples} {PROGRAM}"
    lines = slurm.job(command, place, memory=memory)
    found = [json.loads(line) for line in lines if line.startswith("{")]
    assert len(found) == TASKS, "\n".join([*lines, slurm.log()])
    assert all(one["seen"] == list(range(SAMPLES)) for one in found)
    return found


def test_the_tasks_of_a_job_share_a_service(slurm: Slurm, samples: Path, place: Path) -> None:
    """Which begins with the job's step and is gone with it, with all that it had."""
    found = tasks(slurm, samples, place, "4MiB")
    (service,) = {one["service"] for one in found}
    assert max(one["reads"] for one in found) == SAMPLES
    assert all(one["served"] >= SAMPLES for one in found)
    until(lambda: not Path(service).parent.exists())
    done = processes.run(["pgrep", "-f", f"serve.*{service}"], check=False, capture_output=True, text=True)
    assert done.stdout == ""


def test_a_job_that_asks_for_no_service(slurm: Slurm, samples: Path, place: Path) -> None:
    """Has none."""
    found = tasks(slurm, samples, place)
    assert [(one["service"], one["served"]) for one in found] == [(None, 0)] * TASKS


def test_data_that_are_staged_in(slurm: Slurm, samples: Path, place: Path) -> None:
    """Are in a standing service of the user's before the job begins; what they write there is not run by a shell."""
    program = program_of_all(place)
    if program is None or USER is None:
        pytest.skip("no user, or no Python that they may run")  # root's jobs have no burst buffers
    mine = place / "mine"
    mine.mkdir()
    os.chown(mine, USER, USER)
    path, trap = mine / "service" / "socket", mine / "trap"
    command = [*acting_as(USER), str(program), "serve", "--memory", "4MiB", "--socket", str(path)]
    with processes.started(command, stderr=subprocess.PIPE, text=True, cwd=mine) as process:
        assert process.stderr is not None
        assert "serving" in process.stderr.readline()
        warm = f"#BB_LUA voxload '{samples}/*.npy' --axes CDHW --socket {path}"
        lines = [warm, f"#BB_LUA voxload $(touch {trap})", f"{program} serve status --json --socket {path}"]
        told = json.loads("\n".join(slurm.job("\n".join(lines), mine, user=USER)))
        assert (told["memory"]["blocks"], told["reads"]["done"]) == (SAMPLES, SAMPLES), slurm.log()
        assert not trap.exists()
