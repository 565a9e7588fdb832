"""Journal: what a rank measured under DLIO, step by step, and the file that it is written to."""

from __future__ import annotations

import json
import math
import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import wraps
from pathlib import Path
from time import perf_counter
from typing import Any

from voxload.benchmark.measure.document import record_of
from voxload.benchmark.measure.kernel import KernelCounter
from voxload.benchmark.measure.record import Epoch, Record, Steps, count_difference
from voxload.errors import DataError, NotFoundError
from voxload.files.atomic import replacing
from voxload.files.regular import parse_json, read_text


@dataclass(slots=True)
class _Step:
    asked: float
    came: float
    samples: int
    nbytes: int
    compute: float | None = None
    computed: float = 0.0
    ended: float = 0.0


class StepClock:
    """Notes when batches were asked for, came, and were done with; used by the loop's thread.

    What lies between a batch and the next request is the emulated computing, which `timed` measures, and the rest: the
    wait for other ranks, and what the loop writes down. A batch that nothing was computed for is no step: loops ask for
    one too many where they count.

    Parameters
    ----------
    now
        Seconds from some moment.
    """

    def __init__(self, now: Callable[[], float] = perf_counter) -> None:
        self._now = now
        self._start = now()
        self._steps: list[_Step] = []
        self._open: _Step | None = None
        self._unsettled = 0.0
        self._asked = self._begun = self._ended = self._start

    def begin(self) -> None:
        """Begin an epoch with its first request."""
        self._steps = []
        self._open = None
        self._unsettled = 0.0
        self._asked = self._begun = self._ended = self._now()

    def came(self, *, samples: int, nbytes: int) -> None:
        """Note that the batch asked for is here."""
        self._open = _Step(self._asked, self._now(), samples, nbytes)

    def done(self) -> None:
        """Note that the loop is through with its batch and asks for the next one."""
        self._asked = self._now()
        self._close(self._asked)

    def left(self) -> None:
        """Note that the loop has left: with the end of its last computing, for it has written reports since.

        How long it waited for other ranks in between is not to be seen from here; `settle` adds it.
        """
        step = self._open
        if step is not None and step.compute is not None:
            self._unsettled = step.computed - step.asked
        if step is not None:
            self._close(step.came if step.compute is None else step.computed)

    @property
    def unsettled(self) -> float:
        """Seconds of the epoch's last step until its computing was done, where the loop left then; else 0."""
        return self._unsettled

    def settle(self, slowest: float) -> None:
        """Let the last step end when the slowest rank's computing was done, after so many seconds.

        Ranks leave the wait after the step before together, so that seconds since then mean the same on all of them.
        """
        if self._unsettled:
            step = self._steps[-1]
            step.ended = self._ended = step.asked + max(slowest, self._unsettled)

    def exhausted(self) -> None:
        """Note that the loop asked for one more batch, and there is none."""
        self._ended = self._now()

    def timed(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        """Return `compute` with its time noted for the step that is under way.

        Where its last argument is a number, the seconds to sleep, no more than that is computing: an accelerator would
        have been done, and a busy host that wakes late has its own delay to answer for. So does DLIO 2.0.0 count.
        """

        @wraps(compute)
        def measured(*args: Any, **kwargs: Any) -> Any:
            begin = self._now()
            result = compute(*args, **kwargs)
            if self._open is not None:
                self._open.computed = self._now()
                self._open.compute = min(self._open.computed - begin, _wanted(args))
            return result

        return measured

    def epoch(self) -> tuple[Steps, float]:
        """Return the steps of the epoch, and seconds from its first request to its end."""
        steps = self._steps
        computed = tuple(step.compute or 0.0 for step in steps)
        found = Steps(
            begin=tuple(step.asked - self._start for step in steps),
            stall=tuple(step.came - step.asked for step in steps),
            compute=computed,
            peers=tuple(step.ended - step.came - compute for step, compute in zip(steps, computed, strict=True)),
            samples=tuple(step.samples for step in steps),
            nbytes=tuple(step.nbytes for step in steps),
        )
        return found, self._ended - self._begun

    def _close(self, ended: float) -> None:
        step, self._open = self._open, None
        self._ended = ended
        if step is not None and step.compute is not None:
            step.ended = ended
            self._steps.append(step)


def _wanted(args: tuple[Any, ...]) -> float:
    """Return the seconds that a call was asked to take; infinite where it draws them itself."""
    last = args[-1] if args else None
    return float(last) if isinstance(last, int | float) else math.inf


class Journal:
    """Gathers a rank's epochs into a `Record`, and writes it after each; used by one thread.

    The kernel is asked between epochs, where DLIO looks at no clock.

    Parameters
    ----------
    path
        The file.
    rank
        This rank.
    """

    def __init__(self, path: Path, rank: int) -> None:
        self.clock = StepClock()
        self._path, self._rank = path, rank
        self._counter = KernelCounter()
        self._mark = self._counter.mark()
        self._counts: Mapping[str, Any] = {}
        self._epochs: list[Epoch] = []

    def end_epoch(self, counts: Mapping[str, Any]) -> None:
        """Note the epoch that the clock has seen, with what the loader counted so far, and write all of them."""
        steps, wall = self.clock.epoch()
        kernel = self._counter.since(self._mark)
        self._epochs.append(Epoch(steps, wall, kernel, count_difference(counts, self._counts), math.nan))
        self._counts = counts
        self._write()
        self._mark = self._counter.mark()

    def _write(self) -> None:
        first, memory = self._epochs[0].steps, self._counter.memory()
        record = Record(
            rank=self._rank,
            node=socket.gethostname(),
            epochs=tuple(self._epochs),
            first_batch=first.begin[0] + first.stall[0] if first.begin else 0.0,
            peak_memory=memory.peak,
            shared_memory=memory.shared,
        )
        values = asdict(record)
        for epoch in values["epochs"]:
            epoch["resident"] = None  # nobody looked, and JSON has no NaN
        with replacing(self._path) as temporary:
            temporary.write_text(json.dumps(values, allow_nan=False), encoding="utf-8")


def journal_path(folder: Path, rank: int) -> Path:
    """Return the file of a rank in DLIO's output folder."""
    return folder / f"voxload_dlio_{rank}.json"


def read_records(folder: Path) -> tuple[Record, ...]:
    """Return what the ranks of a run of DLIO wrote into its output folder, by rank.

    Raises NotFoundError when there is nothing, DataError when a file is something else.
    """
    paths = sorted(folder.glob("voxload_dlio_*.json"))
    if not paths:
        raise NotFoundError(
            f"{folder}",
            found="no voxload_dlio_RANK.json",
            expected="the output folder of a run with voxload's data loader",
            remedy="set workload.reader.data_loader_classname to voxload.benchmark.dlio.loader.VoxloadDataLoader",
        )
    return tuple(sorted(map(_read, paths), key=lambda record: record.rank))


def _read(path: Path) -> Record:
    try:
        return record_of(parse_json(read_text(path)))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(f"{path}", found=str(error), expected="what voxload's data loader for DLIO writes") from error
