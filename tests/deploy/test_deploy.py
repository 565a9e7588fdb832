"""deploy/: each recipe is tried as far as this machine can, or compared with what it names."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.serve.conftest import until
from tests.support import processes
from voxload.serve.asking import figures
from voxload.serve.keeping.guests import Guest
from voxload.serve.seen.metrics import Figures

yaml: Any = import_module("yaml")

pytestmark = pytest.mark.usefixtures("no_leaks")
ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PROGRAM = Path(sys.executable).parent / "voxload"


def test_the_dashboard_asks_for_metrics_that_there_are() -> None:
    """By their names and labels."""
    level = {"used": 0, "capacity": 0, "blocks": 0, "dropped": 0, "stored": 0}
    counts = dict.fromkeys(("hits", "hit_bytes", "misses", "stall_seconds", "steps"), 0)
    reads = dict.fromkeys(("done", "from_disk", "from_others", "failed", "storage_bytes", "waited_for"), 0)
    job = {"name": "a", "session": 1, **Guest(lambda *_: None).figures()}
    figures_of_one = {"memory": level, "disk": level, "jobs_met": counts, "reads": reads, "lapsed": 0, "jobs": [job]}
    known = {
        sample.name: set(sample.labels)
        for family in Figures(lambda: {"a": figures_of_one}).collect()
        for sample in family.samples
    }
    board = json.loads((DEPLOY / "grafana" / "voxload.json").read_text())
    targets = [target for panel in board["panels"] for target in panel["targets"]]
    asked = {name for target in targets for name in re.findall(r"voxload_service_\w+", target["expr"])}
    assert asked <= known.keys()
    for target in targets:
        (name, *_) = re.findall(r"voxload_service_\w+", target["expr"])
        labels = set(re.findall(r"{{(\w+)}}", target["legendFormat"])) - {"instance"}
        assert labels <= known[name]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


@pytest.mark.long
def test_manifests_are_what_they_say() -> None:
    """Selectors find their pods, and what the pods run are options that there are."""
    found = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "daemonset.yaml").read_text()))
    kinds: dict[str, Any] = {one["kind"]: one for one in found}
    labels = kinds["DaemonSet"]["spec"]["template"]["metadata"]["labels"]
    assert kinds["DaemonSet"]["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert kinds["Service"]["spec"]["selector"].items() <= labels.items()
    assert kinds["Service"]["spec"]["clusterIP"] == "None"
    (container,) = kinds["DaemonSet"]["spec"]["template"]["spec"]["containers"]
    done = processes.run([str(PROGRAM), "serve", "--help"], check=True, capture_output=True, text=True, cwd=ROOT)
    for argument in container["args"][1:]:
        assert argument.partition("=")[0] in done.stdout
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {one["name"] for one in kinds["DaemonSet"]["spec"]["template"]["spec"]["volumes"]}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
@pytest.mark.parametrize("name", ["voxload.service", "voxload-user.service"])
def test_units_are_well_formed(name: str, tmp_path: Path) -> None:
    """As systemd itself reads them, with a program that is there."""
    unit = tmp_path / name
    words = (DEPLOY / "systemd" / name).read_text()
    unit.write_text(re.sub(r"(Exec\w+=)\S+", rf"\g<1>{PROGRAM}", words))
    analyse = str(shutil.which("systemd-analyze"))
    done = processes.run([analyse, "verify", "--man=no", str(unit)], check=False, capture_output=True, text=True)
    assert name not in done.stderr, done.stderr


@pytest.fixture
def job(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a job."""
    return {
        "PATH": os.environ["PATH"],
        "SLURM_JOB_ID": "27",
        "SLURM_TMPDIR": str(tmp_path),
        "VOXLOAD_PROGRAM": str(PROGRAM),
        "VOXLOAD_SERVE_MEMORY": "1MiB",
    }


def script(name: str, environment: dict[str, str]) -> str:
    """Run one of Slurm's scripts, and return what it prints."""
    command = [str(DEPLOY / "slurm" / name)]
    done = processes.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT)
    return str(done.stdout)


@pytest.mark.long
def test_prolog_and_epilog(job: dict[str, str], tmp_path: Path) -> None:
    """Start one service a node and end that one alone."""
    said = script("prolog.sh", job)
    socket = tmp_path / "voxload-27" / "socket"
    assert said == f"export VOXLOAD_SERVICE={socket}\n"
    assert script("prolog.sh", job) == said
    assert figures(socket)["jobs"] == []
    pid = int((tmp_path / "voxload-27" / "pid").read_text())
    script("epilog.sh", {**job, "SLURM_JOB_ID": "28"})
    assert figures(socket)["jobs"] == []
    script("epilog.sh", job)
    # Whoever started a script has its orphans, and waits for them.
    until(lambda: os.waitpid(pid, os.WNOHANG)[0] == pid)
    assert not socket.parent.exists()
    script("epilog.sh", job)


def test_a_job_that_asks_for_nothing(job: dict[str, str], tmp_path: Path) -> None:
    """Gets nothing."""
    del job["VOXLOAD_SERVE_MEMORY"]
    assert script("prolog.sh", job) == ""
    assert not (tmp_path / "voxload-27").exists()


def test_an_epilog_that_finds_another_process(job: dict[str, str], tmp_path: Path) -> None:
    """Under the number that was noted leaves it alone."""
    folder = tmp_path / "voxload-27"
    folder.mkdir()
    with processes.started([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        (folder / "pid").write_text(f"{other.pid}\n")
        script("epilog.sh", job)
        assert other.poll() is None
    assert not folder.exists()
