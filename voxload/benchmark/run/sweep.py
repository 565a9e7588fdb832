"""Sweep: which settings are tried, measured in turns, and which of them to choose."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from voxload.benchmark.generate.generate import generate
from voxload.benchmark.generate.generated import read_plan
from voxload.benchmark.generate.plan import DatasetPlan
from voxload.benchmark.generate.storage import Codec
from voxload.benchmark.measure.document import Document
from voxload.benchmark.measure.turns import rotated
from voxload.benchmark.results.intervals import ratio_interval
from voxload.benchmark.run.job import Request
from voxload.benchmark.run.launch import launch_benchmark
from voxload.benchmark.workload.workload import Workload
from voxload.errors import InternalError, UsageError

Spatial = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Setting:
    """One point of a sweep; what is None is as it was."""

    threads: int | None = None
    """Threads of each rank."""
    spatial: Spatial | None = None
    """Blocks along (d, h, w)."""
    chunks: Spatial | None = None
    """Extents (d, h, w) of a chunk; the data set is generated anew."""
    codec: str | None = None
    """Codec; the data set is generated anew."""

    def __str__(self) -> str:
        parts = (
            ("", self.threads, " threads"),
            ("grid ", self.spatial, ""),
            ("chunks ", self.chunks, ""),
            ("", self.codec, ""),
        )
        named = [f"{before}{_text(value)}{after}" for before, value, after in parts if value is not None]
        return ", ".join(named) or "as it is"

    def value(self, factor: str) -> int | Spatial | str | None:
        """Return this point's value of one of `Factors.varied`."""
        found: int | Spatial | str | None = getattr(self, factor)
        return found

    @property
    def is_stored_anew(self) -> bool:
        """Whether it needs a data set of its own."""
        return self.chunks is not None or self.codec is not None


@dataclass(frozen=True, slots=True)
class Factors:
    """What varies: every value of each with every value of the others."""

    threads: tuple[int, ...] = ()
    spatial: tuple[Spatial, ...] = ()
    chunks: tuple[Spatial, ...] = ()
    codec: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.varied:
            raise UsageError("sweep", found="one value of everything", expected="two values of something or more")

    @property
    def varied(self) -> tuple[str, ...]:
        """Names of the factors that have several values."""
        return tuple(name for name in self.__dataclass_fields__ if len(getattr(self, name)) > 1)

    def settings(self) -> Iterator[Setting]:
        """Yield every point."""
        columns = (getattr(self, name) or (None,) for name in self.__dataclass_fields__)
        for values in itertools.product(*columns):
            yield Setting(*values)


def applied(setting: Setting, workload: Workload) -> Workload:
    """Return a workload with the threads and the grid of a point."""
    supply, share = workload.supply, workload.share
    if setting.threads is not None:
        supply = replace(supply, threads=setting.threads)
    if setting.spatial is not None:
        share = replace(share, spatial=setting.spatial)
    return replace(workload, supply=supply, share=share)


def stored(setting: Setting, plan: DatasetPlan) -> DatasetPlan:
    """Return a data set with the chunks and the codec of a point, without shards: these are not swept.

    Raises UsageError when the format has none of them.
    """
    storage = plan.storage
    if setting.chunks is not None:
        extents = tuple(min(pair) for pair in zip(setting.chunks, plan.spatial, strict=True))
        storage = replace(storage, chunks=(plan.shape[0], extents[0], extents[1], extents[2]), shards=None)
    if setting.codec is not None:
        storage = replace(storage, codec=Codec(setting.codec))
    return replace(plan, storage=storage)


def processes(setting: Setting, workload: Workload, asked: int) -> int:
    """Return how many processes a point runs: as many as asked, or as many as its grid has blocks."""
    return asked or prod(setting.spatial or workload.share.spatial)


def name(setting: Setting) -> str:
    """Return a name that files can have."""
    kept = (character if character.isalnum() else "-" for character in str(setting))
    return "-".join(part for part in "".join(kept).split("-") if part)


def _text(value: int | str | Sequence[int]) -> str:
    return str(value) if isinstance(value, int | str) else "x".join(map(str, value))


ENOUGH = 0.95
"""Share of the best throughput beyond which more is not worth its cost."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What one factor should be, the others being as in the best point."""

    factor: str
    setting: Setting
    """The point that has it."""
    rate: float
    """Its throughput, the median."""
    best: float
    """The largest throughput of this factor's values."""
    why: str
    """The reason, a sentence."""


@dataclass(frozen=True, slots=True)
class Point:
    """A setting and what was measured of it."""

    setting: Setting
    rates: tuple[float, ...]
    """Throughput of each repetition, in samples per second."""

    @property
    def rate(self) -> float:
        """The median."""
        return float(np.median(self.rates))


def choices(points: Sequence[Point], varied: Sequence[str]) -> tuple[Choice, ...]:
    """Return, for each factor, the cheapest value that is as good as the best one, with the others at their best.

    Cheapest is the first in the order in which values were named: fewest threads, say. A value is as good when it gives
    `ENOUGH` of the largest throughput, or when repetitions cannot tell it from the best.
    """
    top = max(points, key=lambda point: point.rate)
    found = []
    for factor in varied:
        others = [name for name in Setting.__dataclass_fields__ if name != factor]
        line = [point for point in points if all(point.setting.value(o) == top.setting.value(o) for o in others)]
        best = max(line, key=lambda point: point.rate)
        first = next(point for point in line if point.rate >= ENOUGH * best.rate or _is_noise(point, best))
        found.append(Choice(factor, first.setting, first.rate, best.rate, _why(factor, first, best, line)))
    return tuple(found)


def best_setting(points: Sequence[Point], found: Sequence[Choice]) -> Setting:
    """Return the point that has every factor's choice; all points of a sweep are there."""
    wanted: Mapping[str, object] = {choice.factor: choice.setting.value(choice.factor) for choice in found}
    return next(
        point.setting
        for point in points
        if all(point.setting.value(factor) == value for factor, value in wanted.items())
    )


def _is_noise(point: Point, best: Point) -> bool:
    """Tell whether repetitions cannot tell two points apart."""
    interval = ratio_interval(point.rates, best.rates)
    return interval is not None and interval.is_sure and interval.low <= 1


def _why(factor: str, chosen: Point, best: Point, line: Sequence[Point]) -> str:
    """Return what the chosen value gives beside its neighbours."""
    place = line.index(chosen)
    value = _said(chosen, factor)
    parts = [f"{value} gives {chosen.rate:.4g} samples/s"]
    if place:
        parts.append(f"{chosen.rate / line[place - 1].rate:.2f} times {_said(line[place - 1], factor)}")
    if chosen is best:
        later = line[place + 1 :]
        parts.append("more is slower" if later and factor == "threads" else "the most of all")
    else:
        parts.append(f"{_said(best, factor)} gives {best.rate / chosen.rate - 1:+.1%}, within noise or not worth it")
    return "; ".join(parts) + "."


def _said(point: Point, factor: str) -> str:
    return str(Setting(**{factor: point.setting.value(factor)}))  # type: ignore[arg-type] # a value of that factor


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
        for place in rotated(range(len(settings)), turn):
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
