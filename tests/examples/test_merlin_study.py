"""examples/merlin as it is meant to run: Merlin's tasks on a server of Redis, done by Celery's workers, some killed."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support import processes
from voxload.catalog import Catalog, read_failures
from voxload.catalog.generations import generation_of
from voxload.verification import verify

ROOT = Path(__file__).parents[2]
STUDY = ROOT / "examples" / "merlin"
COUNT = int(os.environ.get("VOXLOAD_TEST_UNIVERSES", "24"))
EVERY = 20
"""One of so many simulations fails."""
PATIENCE = max(20.0, COUNT / 2)
"""Seconds after which Redis hands a task of a worker that says nothing to another one."""
FAILING = """
import runpy, sys
if int(sys.argv[1]) % {every} == 7:
    sys.exit(3)
runpy.run_path({path!r}, run_name="__main__")
"""
CONFIGURATION = """
broker: &server
    name: redis
    username: ''
    password: {folder}/redis.pass
    server: 127.0.0.1
    port: {port}
    db_num: 0
results_backend:
    <<: *server
    encryption_key: {folder}/.merlin/encrypt_data_key
celery:
    overrides:
        visibility_timeout: {patience}
"""


def _until(is_so: Callable[[], bool], limit: float) -> None:
    waited = threading.Event()
    for _ in range(int(limit / 0.2)):
        if is_so():
            return
        waited.wait(0.2)
    raise AssertionError("not in time")


@contextmanager
def _server(folder: Path) -> Iterator[dict[str, str]]:
    """Yield the environment of Merlin with a server of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "redis.pass").write_text("a word of its own")
    bin_folder = Path(sys.executable).parent
    environ = os.environ | {"HOME": str(folder), "C_FORCE_ROOT": "1", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environ["PATH"] = f"{bin_folder}:{environ['PATH']}"
    processes.run([bin_folder / "merlin", "config", "create", "--broker", "redis"], env=environ, capture_output=True)
    words = {"folder": folder, "port": port, "patience": PATIENCE}
    (folder / ".merlin" / "app.yaml").write_text(CONFIGURATION.format(**words))
    command = [
        str(bin_folder / "redis-server"),
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--dir",
        str(folder),
    ]
    with processes.started([*command, "--requirepass", "a word of its own"], stdout=subprocess.DEVNULL):

        def answers() -> bool:
            with socket.socket() as asked:
                return asked.connect_ex(("127.0.0.1", port)) == 0

        _until(answers, processes.LIMIT)
        yield environ


def _workers(folder: Path, name: str) -> list[int]:
    """Return the processes of Celery that belong to a folder's server, and have a name among their words."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            is_own = f"HOME={folder}".encode() in (place / "environ").read_bytes().split(b"\0")
            said = (place / "cmdline").read_bytes()
            is_celery = b"celery" in said and name.encode() in said
        except OSError:
            continue
        if is_own and is_celery:
            found.append(int(place.name))
    return found


@pytest.mark.long
def test_universes_become_samples_while_workers_are_killed(tmp_path: Path) -> None:
    """All that can be simulated are there, and right; those that cannot are listed; a network has learnt from them."""
    study, universes = tmp_path / "study", tmp_path / "universes"
    shutil.copytree(STUDY, study)
    (study / "simulate.py").rename(study / "simulated.py")
    (study / "simulate.py").write_text(FAILING.format(every=EVERY, path=str(study / "simulated.py")))
    limit = 60 + 10 * PATIENCE + 6 * COUNT
    with _server(tmp_path) as environ:
        words = {"cwd": study, "env": environ, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        merlin = str(Path(sys.executable).parent / "merlin")
        variables = [f"COUNT={COUNT}", "EPOCHS=1", "RANKS=1", f"UNIVERSES={universes}"]
        processes.run([merlin, "run", "study.yaml", "--vars", *variables], cwd=study, env=environ, capture_output=True)

        def rows() -> int:
            return len(Catalog.read(universes)) if (universes / "catalog.parquet").exists() else 0

        with ExitStack() as ending:
            for share in (4, 2):  # twice, workers die in the middle of what they do
                ending.enter_context(processes.started([merlin, "run-workers", "study.yaml"], **words))  # type: ignore[arg-type]
                _until(lambda share=share: rows() >= COUNT // share, limit)  # type: ignore[misc]
                for pid in _workers(tmp_path, "simulators"):
                    os.kill(pid, signal.SIGKILL)
                _until(lambda: not _workers(tmp_path, "simulators"), limit)
            # What a worker had taken, and not yet told Redis of, is lost with it: Merlin finds out what is not done.
            (workspace,) = study.glob("studies/*")
            processes.run([merlin, "restart", str(workspace)], cwd=study, env=environ, capture_output=True)
            ending.enter_context(processes.started([merlin, "run-workers", "study.yaml"], **words))  # type: ignore[arg-type]
            _until(lambda: any(study.glob("studies/*/train/**/MERLIN_FINISHED")), limit)
            for pid in _workers(tmp_path, ""):
                os.kill(pid, signal.SIGKILL)
    found = Catalog.read(universes)
    indices = {int(name.rpartition("_")[2]) for name in found.samples}
    failed = {int(name.rpartition("_")[2]) for name in read_failures(universes)}
    assert len(indices | failed) == COUNT
    assert failed == {index for index in indices | failed if index % EVERY == 7}
    assert set(read_failures(universes).values()) <= {"simulate.py ended with status 3"}
    assert generation_of(found) == len(indices)
    assert not verify(universes).damaged
    (learnt,) = study.glob("studies/*/train/**/learnt/model.pt")
    assert learnt.stat().st_size > 0
