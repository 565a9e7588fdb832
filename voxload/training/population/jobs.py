"""Population: trainers started on this machine, each a job of its own, and what became of all of them."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from voxload.errors import DataError, InternalError, NotFoundError, VoxloadError
from voxload.files.atomic import replacing
from voxload.files.regular import parse_json
from voxload.grid import ProcessGrid
from voxload.launch.devices import check_there
from voxload.launch.processes import cores_of, launch_ranks
from voxload.launch.rendezvous import LOOPBACK, store_at
from voxload.parallel.tournament.meeting import ended_key
from voxload.training.plan import TrainingPlan
from voxload.training.population.rounds import folder_of
from voxload.training.population.seat import MEETING, TRAINER, Seat, ranks_of_each
from voxload.training.result import WEIGHTS, TrainingResult

POPULATION = "population.json"
"""File name of what became of a population, in its output folder."""
_TIMEOUT = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Population:
    """Trainers and their results."""

    results: Mapping[int, TrainingResult]
    """Of those that ended well, by number."""
    lost: Mapping[int, str]
    """What others died of, by number."""

    @property
    def best(self) -> int:
        """The trainer whose model has the least loss on the held-out samples."""
        return min(self.results, key=lambda trainer: (self.results[trainer].epochs[-1].validation_loss, trainer))

    def write(self, output: str) -> TrainingResult:
        """Put what became of all into the output folder, with the best one's weights and result; return that."""
        folder = Path(output)
        values = {
            "best": self.best,
            "lost": {str(trainer): words for trainer, words in self.lost.items()},
            "held_out_losses": {
                str(trainer): result.epochs[-1].validation_loss for trainer, result in self.results.items()
            },
        }
        result = self.results[self.best]
        with replacing(folder / POPULATION) as path:
            path.write_text(json.dumps(values, indent=1), encoding="utf-8")
        with replacing(folder / "result.json") as path:
            path.write_text(result.to_json(), encoding="utf-8")
        with replacing(folder / WEIGHTS) as path:
            shutil.copyfile(Path(folder_of(output, self.best)) / WEIGHTS, path)
        return result


def read_population(output: str, trainers: int, lost: Mapping[int, str]) -> Population:
    """Return what the trainers of a population wrote; raises NotFoundError where none did."""
    found = {}
    for trainer in range(trainers):
        path = Path(folder_of(output, trainer)) / "result.json"
        if trainer not in lost and path.exists():
            found[trainer] = TrainingResult.from_json(path.read_text(encoding="utf-8"))
    if not found:
        raise NotFoundError(f"results of {trainers} trainers in {output}", found="none", remedy="see what they wrote")
    gone = {trainer: "no result" for trainer in range(trainers) if trainer not in found}
    return Population(found, gone | dict(lost))


def written_population(output: str, trainers: int) -> Population:
    """Return what `Population.write` wrote."""
    try:
        values = parse_json((Path(output) / POPULATION).read_text(encoding="utf-8"))
        lost = {int(trainer): str(words) for trainer, words in values["lost"].items()}
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise DataError(
            f"{Path(output) / POPULATION}", found=str(error), expected="what voxload train wrote"
        ) from error
    return read_population(output, trainers, lost)


def concluded(plan: TrainingPlan, seat: Seat) -> Population:
    """Wait, as the first process of a launcher's job, for the other trainers; return what became of all.

    A trainer that has not ended within the tournament's patience, behind the one before, is lost.
    """
    lost = {}
    for trainer in range(plan.trainers):
        try:
            seat.meeting.wait([ended_key(trainer)], timedelta(seconds=plan.tournament.patience))
        except RuntimeError:
            lost[trainer] = f"not ended {plan.tournament.patience} seconds behind the others"
    return read_population(plan.output, plan.trainers, lost)


def launch_population(
    plan: TrainingPlan, *, processes: int, on_event: Callable[[int, dict[str, Any]], None]
) -> Population:
    """Run a plan of several trainers on local processes, and return what became of them.

    A trainer that dies forfeits; the others go on. All processes end when this call ends, by return or by exception.

    Raises
    ------
    UsageError
        When grid, trainers and processes do not fit each other.
    VoxloadError
        What the first trainer died of, when none is left.
    """
    size = ranks_of_each(processes, plan.trainers)
    ProcessGrid(spatial=plan.spatial, world_size=size, rank=0)
    check_there(plan.device, ranks=processes)
    meeting = store_at(LOOPBACK, processes + 1, timeout=_TIMEOUT)
    jobs = [_Job(plan, trainer, size, meeting, on_event) for trainer in range(plan.trainers)]
    try:
        for job in jobs:
            job.start()
        for job in jobs:
            job.join()
    finally:
        for job in jobs:
            job.stop()
        for job in jobs:
            job.join()
    errors = {job.trainer: job.error for job in jobs if job.error is not None}
    if len(errors) == plan.trainers:
        raise errors[0]
    return read_population(plan.output, plan.trainers, {trainer: str(error) for trainer, error in errors.items()})


class _Job:
    """One trainer: its processes, and the thread that listens to them."""

    def __init__(
        self, plan: TrainingPlan, trainer: int, size: int, meeting: Any, on_event: Callable[[int, dict[str, Any]], None]
    ) -> None:
        self.trainer = trainer
        self.error: VoxloadError | None = None
        self._plan, self._size, self._meeting, self._on_event = plan, size, meeting, on_event
        self._process: subprocess.Popen[str] | None = None
        self._is_stopped = self._has_begun = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"voxload-trainer-{trainer}", daemon=True)

    def start(self) -> None:
        """Start it."""
        self._thread.start()

    def join(self) -> None:
        """Wait until it has ended."""
        if self._thread.ident is not None:
            self._thread.join()

    def stop(self) -> None:
        """Tell it to end, if it has not ended."""
        with self._lock:
            self._is_stopped = True
            if self._process is not None and self._process.poll() is None:
                self._process.terminate()

    def _run(self) -> None:
        threads = cores_of(self._size * self._plan.trainers)
        environ = {TRAINER: str(self.trainer), MEETING: f"{LOOPBACK}:{self._meeting.port}"}
        environ["OMP_NUM_THREADS"] = str(threads)
        try:
            launch_ranks(
                "voxload.training.worker",
                self._plan.to_json(),
                processes=self._size,
                subject=f"trainer {self.trainer}",
                hear=self._hear,
                environ=environ,
                started=self._keep,
            )
        except VoxloadError as error:
            self.error = error
        except Exception as error:  # noqa: BLE001 - of a thread: told by whoever waits for it
            self.error = InternalError(f"trainer {self.trainer}", found=str(error), remedy="report it")
        # Whatever it died of: nobody waits for it any more.
        self._meeting.set(ended_key(self.trainer), "")
        if self.error is not None and self._has_begun and not self._is_stopped:
            message = f"{self.error}; the other trainers go on without it"
            warnings.warn(message, RuntimeWarning, stacklevel=2)

    def _hear(self, event: dict[str, Any]) -> None:
        self._has_begun = True
        self._on_event(self.trainer, event)

    def _keep(self, process: subprocess.Popen[str]) -> None:
        with self._lock:
            self._process = process
            if self._is_stopped:
                process.terminate()
