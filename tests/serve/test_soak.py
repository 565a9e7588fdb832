"""A soak: jobs start and are killed at random, quotas change, services are stopped, killed and started again.

Every job compares what it gets with what is stored. In the end nothing is left over: no descriptor, thread, memory or
byte of a quota. ``VOXLOAD_SOAK_ROUNDS`` says how long; 800 rounds take half an hour.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from signal import Signals

import numpy as np
import pytest

from tests.serve.conftest import until
from tests.support import processes
from tests.support.settled import settle
from voxload.errors import VoxloadError
from voxload.serve.asking import Visit, figures

ROOT = Path(__file__).parents[2]
PROGRAM = Path(sys.executable).parent / "voxload"
ROUNDS = int(os.environ.get("VOXLOAD_SOAK_ROUNDS", "20"))
pytestmark = [
    pytest.mark.usefixtures("no_leaks"),
    pytest.mark.long,
    pytest.mark.timeout(900 + 10 * ROUNDS),  # a round may wait for a job's whole life
]
THREADS = 24
"""Of a service of two readers, at most: they and what decodes for them begin when they are first needed."""
SAMPLES, NBYTES = 24, 2 * 8**3 * 4
JOBS = 4
JOB = """
import sys
import time
import torch
import voxload
from voxload.errors import NotFoundError, StorageError

folder, service, seed, epochs = sys.argv[1:]
data = voxload.VolumeDataset(f"{folder}/*.npy", axes="CDHW")
cache = voxload.Cache(service=service)
while True:  # a service that is named has to be there, and to answer, when a job begins
    shuffled = torch.Generator().manual_seed(int(seed))
    loader = voxload.DataLoader(data, batch_size=2, shuffle=True, num_workers=2, cache=cache, generator=shuffled)
    try:
        batches = iter(loader)
        break
    except (NotFoundError, StorageError):
        loader.close()
        time.sleep(0.1)
for epoch in range(int(epochs)):
    seen = []
    for batch in batches if epoch == 0 else loader:
        for sample in batch if isinstance(batch, torch.Tensor) else batch[0]:
            number = int(sample.flatten()[0])
            assert bool((sample == number).all()), "wrong voxels"
            seen.append(number)
    assert sorted(seen) == list(range(len(data))), "wrong samples"
loader.close()
print("well", flush=True)
"""


class Soak:
    """A service, its jobs, and chance."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack, self._folder = stack, folder
        self.path = folder / "service" / "socket"
        self._jobs: list[tuple[subprocess.Popen[str], bool]] = []
        self._chance = random.Random(27)
        self.samples = folder / "samples"
        self.samples.mkdir()
        for number in range(SAMPLES):
            np.save(self.samples / f"{number:02}.npy", np.full((2, 8, 8, 8), number, np.float32))
        settle(self.samples)
        self.service = self.start()

    def start(self) -> subprocess.Popen[str]:
        """Start a service with the disk of the one before."""
        disk = ["--disk", str(self._folder / "disk"), "--disk-size", "1MiB"]
        command = [str(PROGRAM), "serve", "--memory", "128KiB", "--socket", str(self.path), *disk]
        process = self._stack.enter_context(processes.started(command, stderr=subprocess.PIPE, text=True, cwd=ROOT))
        assert process.stderr is not None
        assert "serving" in process.stderr.readline()
        return process

    def round(self) -> None:
        """Let something happen."""
        for place in reversed(range(len(self._jobs))):
            process, was_killed = self._jobs[place]
            if process.poll() is not None:
                self.end(process, was_killed=was_killed)
                del self._jobs[place]
        act = self._chance.choice([self.begin, self.begin, self.begin, self.kill, self.quota, self.stop, self.crash])
        act()

    def make_room(self) -> None:
        """Wait for the job that began first where there are many."""
        if len(self._jobs) >= JOBS:
            process, was_killed = self._jobs.pop(0)
            process.wait()
            self.end(process, was_killed=was_killed)

    def begin(self) -> None:
        """Start a job, once there are not too many."""
        self.make_room()
        words = [str(self.samples), str(self.path), str(self._chance.randrange(99)), str(self._chance.randrange(1, 4))]
        command = [sys.executable, "-W", "ignore", "-c", JOB, *words]
        process = self._stack.enter_context(
            processes.started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        )
        self._jobs.append((process, False))

    def kill(self) -> None:
        """Kill a job."""
        if self._jobs:
            place = self._chance.randrange(len(self._jobs))
            self._jobs[place][0].kill()
            self._jobs[place] = (self._jobs[place][0], True)

    def quota(self) -> None:
        """Change how much memory is used."""
        with suppress(VoxloadError), Visit(self.path, "quota") as visit:
            visit.limit(self._chance.choice([0, 16 * 1024 + 4 * NBYTES, 2**17]))

    def stop(self) -> None:
        """Stop the service for a moment."""
        self.make_room()  # what begins while nobody answers tries again until somebody does
        self.service.send_signal(Signals.SIGSTOP)
        self.begin()
        self.service.send_signal(Signals.SIGCONT)

    def crash(self) -> None:
        """Kill the service, and start another one."""
        self.service.kill()
        self.service.wait()
        self.service = self.start()

    def end(self, process: subprocess.Popen[str], *, was_killed: bool) -> None:
        """See that a job that was not killed ended well."""
        said, errors = process.communicate()
        assert was_killed or (process.returncode, said) == (0, "well\n"), errors

    def finish(self) -> None:
        """Wait for all jobs."""
        for process, was_killed in self._jobs:
            process.wait()
            self.end(process, was_killed=was_killed)
        self._jobs.clear()

    def left(self) -> tuple[int, int]:
        """Return how many descriptors and threads the service has."""
        folder = Path(f"/proc/{self.service.pid}")
        return len(list((folder / "fd").iterdir())), len(list((folder / "task").iterdir()))


def test_a_soak(tmp_path: Path) -> None:
    """Whatever happens in whatever order."""
    with ExitStack() as stack:
        soak = Soak(stack, tmp_path)
        for _ in range(ROUNDS):
            soak.round()
        soak.finish()
        soak.crash()
        soak.begin()
        soak.finish()
        until(lambda: figures(soak.path)["jobs"] == [])
        before, _ = soak.left()
        for _ in range(max(3, ROUNDS // 10)):
            soak.begin()
            soak.kill()
            soak.begin()
            soak.quota()
            soak.finish()
        until(lambda: figures(soak.path)["jobs"] == [])
        with Visit(soak.path, "quota") as visit:
            visit.limit(0)
        found = figures(soak.path)
        assert (found["memory"]["blocks"], found["reads"]["under_way"]) == (0, 0)
        assert found["memory"]["used"] <= 16 * 1024
        assert found["blocks_known"] == found["disk"]["blocks"] <= SAMPLES
        until(lambda: soak.left()[0] <= before)
        assert soak.left()[1] <= THREADS
