"""run_sweep: every setting of a sweep measured, in turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from voxload.benchmark.document import Document
from voxload.benchmark.generate import generate
from voxload.benchmark.generated import read_plan
from voxload.benchmark.job import Request
from voxload.benchmark.knee import Point
from voxload.benchmark.launch import launch_benchmark
from voxload.benchmark.sweep import Factors, Setting, applied, name, processes, stored
from voxload.benchmark.workload import Workload
from voxload.errors import InternalError, UsageError

Hear = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Course:
    """How a sweep is run."""

    factors: Factors
    repeats: int = 3
    """Rounds: in each, every setting has its turn, another one first, so that a machine that slows down harms all."""
    processes: int = 0
    """Processes of each run; 0 for as many as the grid has blocks."""
    folder: Path = Path("voxload-sweep")
    """Where data sets of other chunks and codecs are generated, and results are written."""
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Swept:
    """One setting and its results."""

    setting: Setting
    documents: tuple[Document, ...]
    """One for each round."""

    @property
    def point(self) -> Point:
        """Setting and throughputs."""
        rates = [rate for document in self.documents for rate in document.values("samples_per_second")]
        return Point(self.setting, tuple(rates))


def run_sweep(workload: Workload, course: Course, hear: Hear) -> tuple[Swept, ...]:
    """Measure every setting and return the results, in the order of the settings.

    Parameters
    ----------
    workload
        What is measured, but for what varies.
    course
        What varies, and how often it is measured.
    hear
        Hears of ``generate`` and ``measure`` events, with the setting.

    Raises
    ------
    UsageError
        When chunks or codecs vary and the data set is none that `bench generate` wrote, or something does not fit.
    VoxloadError
        What data and storage raise.
    """
    settings = tuple(course.factors.settings())
    workloads = [_prepared(setting, workload, course, hear) for setting in settings]
    found: list[list[Document]] = [[] for _ in settings]
    for turn in range(course.repeats):
        first = turn % len(settings)
        for place in (*range(first, len(settings)), *range(first)):
            hear({"event": "measure", "setting": str(settings[place]), "turn": turn})
            found[place].append(_measured(workloads[place], course, settings[place], turn))
    return tuple(Swept(setting, tuple(documents)) for setting, documents in zip(settings, found, strict=True))


def _prepared(setting: Setting, workload: Workload, course: Course, hear: Hear) -> Workload:
    """Return the workload of a setting, with a data set of its own where it needs one."""
    wanted = applied(setting, workload)
    if not setting.is_stored_anew:
        return wanted
    location = Path(workload.samples.location)
    plan = read_plan(location if location.is_dir() else location.parent)
    if plan is None:
        raise UsageError(
            "--chunks and --codec",
            found=f"{location}, which voxload bench generate did not write",
            expected="a generated data set, which can be generated anew",
            remedy="generate one of the same shape and type, or sweep over --threads and --spatial",
        )
    hear({"event": "generate", "setting": str(setting)})
    report = generate(
        course.folder / f"data-{name(replace(setting, threads=None, spatial=None))}", stored(setting, plan)
    )
    return replace(wanted, samples=replace(wanted.samples, location=str(report.catalog)))


def _measured(workload: Workload, course: Course, setting: Setting, turn: int) -> Document:
    """Return one turn's result, and keep it as a file."""
    share = replace(workload.share, seed=workload.share.seed + turn)
    request = Request(replace(workload, share=share), command=course.command)
    count = processes(setting, workload, course.processes)
    document = launch_benchmark(request, processes=count, hear=_hush)
    if document is None:
        raise InternalError("sweep", found="no result on this rank", remedy="start it without a launcher")
    course.folder.mkdir(parents=True, exist_ok=True)
    document.write(course.folder / f"{name(setting)}-{turn}.json")
    return document


def _hush(event: dict[str, Any]) -> None:
    """Say nothing: a sweep tells of its turns."""
