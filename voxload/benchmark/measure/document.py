"""Document: what `voxload bench run` writes as JSON, and how it is read again.

The words of `Document` are the schema; `SCHEMA` names it, and a reader refuses what it does not know.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from voxload.benchmark.measure.record import Epoch, Kernel, Record, Steps
from voxload.benchmark.workload.workload import Workload
from voxload.display.description import Described, Description
from voxload.display.table import Listing, extents, joined, several
from voxload.errors import DataError, NotFoundError
from voxload.files.atomic import replacing
from voxload.files.regular import check_regular, parse_json, read_text
from voxload.units import format_bytes

SCHEMA = "voxload-bench/1"
"""Name and version of the format; the version changes when a word's meaning does."""


_SHOWN = (
    ("samples/s", "samples_per_second", 1.0),
    ("delivered, GB/s", "delivered_per_second", 1e9),
    ("AU, %", "utilisation", 0.01),
    ("waiting for data, s", "stall_seconds", 1.0),
    ("read over delivered", "amplification", 1.0),
)
"""Figures that a notebook shows; a report has all of them."""
_BYTES = ("_bytes", "delivered_per_second", "peak_memory")
"""Ends of the names of figures that are bytes."""


@dataclass(frozen=True, slots=True)
class Cold:
    """What was done about the page cache before a run, and what was seen of it."""

    method: str
    """The rung of the ladder that was used; ``none`` where nothing was asked for."""
    resident: float
    """Share of the data set's pages that were in memory when the first epoch began; NaN where it is unknown."""
    is_verified: bool
    """Whether that was looked at."""
    text: str
    """The same for people, such as ``cold, verified: 0.0 % of the data set in memory``."""


@dataclass(frozen=True, slots=True, repr=False)
class Run(Described):
    """One repetition."""

    seed: int
    """Seed of its order."""
    cold: Cold
    records: tuple[Record, ...]
    """Of each rank, by rank."""
    figures: Mapping[str, Any]
    """What `Figures.as_dict` gives."""

    def _described(self) -> Description:
        known = {name: value for name, value in self.figures.items() if isinstance(value, int | float)}
        numbers = {
            name.replace("_", " "): format_bytes(int(value)) if name.endswith(_BYTES) else f"{value:.6g}"
            for name, value in known.items()
        }
        facts = {"seed": str(self.seed), "ranks": str(len(self.records)), "page cache": self.cold.text, **numbers}
        speed = numbers.get("samples per second", "no")
        return Description("Run", (f"seed {self.seed}", f"{speed} samples/s", self.cold.text), facts)


@dataclass(frozen=True, slots=True, repr=False)
class Document(Described):
    """A benchmark's result."""

    workload: Workload
    command: tuple[str, ...]
    """The command line."""
    started: str
    """When, in UTC, as ISO 8601 has it."""
    hosts: tuple[Mapping[str, Any], ...]
    """Facts of each node: name, processor, cores, memory_bytes, system, file_system, versions, gpus."""
    data: Mapping[str, Any]
    """Facts of the data set: samples, shape, axes, dtype, format, chunks, shards, codecs, sample_bytes, bytes,
    stored_bytes."""
    ranks: int
    """Ranks that ran."""
    group_ranks: int
    """Ranks of a sample group that ran."""
    labels: tuple[str, ...]
    """What a reader must know before any figure: a warm cache, a small data set, a known seed, absent ranks."""
    runs: tuple[Run, ...]
    """Repetitions, in order."""

    def values(self, name: str) -> tuple[float, ...]:
        """Return one figure of every run, such as ``samples_per_second`` or ``stall.p99``; NaN where it has none."""
        found = []
        for run in self.runs:
            value: Any = run.figures
            for word in name.split("."):
                value = value.get(word) if isinstance(value, Mapping) else None
            found.append(math.nan if value is None else float(value))
        return tuple(found)

    def median(self, name: str) -> float:
        """Return the middle one of `values`."""
        return float(np.median(self.values(name)))

    def description(self, *, name: str = "") -> Description:
        """Return what is said of the result, under a name of its own where it has one."""
        supply, share, runs = self.workload.supply, self.workload.share, several(len(self.runs), "run")
        cut = f"{several(self.ranks, 'rank')}, {extents(share.spatial)} blocks a sample"
        told = dict.fromkeys(run.cold.text for run in self.runs)
        facts = {
            "loader": f"{supply.loader}, {supply.threads} threads, {supply.prefetch} batches ahead",
            "ranks": f"{cut}, batch size {share.batch_size}",
            "samples": f"{self.data.get('samples', 'unknown')} in {self.workload.samples.location}",
            "as stored": _bytes(self.data.get("stored_bytes")),
            "page cache": joined(told, 2, letters=60),
            "started": self.started,
        }
        rows = tuple((title, *self._spread(key, factor)) for title, key, factor in _SHOWN)
        listing = Listing(f"Figures of {runs}", ("figure", "median", "least", "most"), rows)
        notes = Listing("Read these first", ("label",), tuple((label,) for label in self.labels))
        speed = f"{rows[0][1]} samples/s"
        parts = [*([name] if name else []), supply.loader, cut, speed, runs]
        return Description(type(self).__name__, tuple(parts), facts, (listing, *([notes] if self.labels else [])))

    def _described(self) -> Description:
        return self.description()

    def _spread(self, name: str, factor: float) -> tuple[str, str, str]:
        """Return median, least and most of a figure over runs; dashes where no run has it."""
        known = [value / factor for value in self.values(name) if math.isfinite(value)]
        if not known:
            return "-", "-", "-"
        return f"{np.median(known):.4g}", f"{min(known):.4g}", f"{max(known):.4g}"

    def write(self, path: Path) -> None:
        """Write the document; it appears whole or not at all."""
        with replacing(path) as temporary:
            temporary.write_text(self.to_json(), encoding="utf-8")

    def to_json(self) -> str:
        """Return the document as JSON; what is not a number becomes null."""
        return json.dumps(_plain({"schema": SCHEMA} | asdict(self)), allow_nan=False)

    @classmethod
    def read(cls, path: Path) -> Document:
        """Return the document in a file.

        Raises NotFoundError when there is none, DataError when the file is something else or of another version.
        """
        check_regular(path)
        if not path.is_file():
            raise NotFoundError(f"{path}", found="no such file", expected="a result of voxload bench run --output")
        try:
            return cls.from_dict(parse_json(read_text(path)))
        except DataError as error:
            raise error.within(f"{path}", remedy="name a result of voxload bench run --output") from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DataError(
                f"{path}", found=f"no result of voxload bench: {error}", expected=f"JSON with schema {SCHEMA}"
            ) from error

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Document:
        """Return the document of what `to_json` wrote."""
        rest = dict(values)
        schema = rest.pop("schema", None)
        if schema != SCHEMA:
            raise DataError(
                "benchmark result",
                found=f"schema {schema!r}",
                expected=repr(SCHEMA),
                remedy="read it with the version of voxload that wrote it",
            )
        workload = Workload.from_dict(rest.pop("workload"))
        runs = tuple(_run(run) for run in rest.pop("runs"))
        lists: dict[str, Any] = {name: tuple(rest.pop(name)) for name in ("command", "hosts", "labels")}
        return cls(workload=workload, runs=runs, **lists, **rest)


def _run(values: dict[str, Any]) -> Run:
    cold = dict(values["cold"])
    cold["resident"] = _number(cold["resident"])
    records = tuple(record_of(record) for record in values["records"])
    return Run(values["seed"], Cold(**cold), records, values["figures"])


def record_of(values: Mapping[str, Any]) -> Record:
    """Return the record that `dataclasses.asdict` took apart."""
    rest = dict(values)
    epochs = tuple(_epoch(epoch) for epoch in rest.pop("epochs"))
    return Record(epochs=epochs, wrong=tuple(rest.pop("wrong")), notes=tuple(rest.pop("notes")), **rest)


def _epoch(values: Mapping[str, Any]) -> Epoch:
    steps = Steps(**{name: tuple(column) for name, column in values["steps"].items()})
    resident = _number(values["resident"])
    return Epoch(steps, values["wall"], Kernel(**values["kernel"]), values["counts"], resident)


def _bytes(value: Any) -> str:
    return format_bytes(int(value)) if isinstance(value, int | float) else ""


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _plain(value: Any) -> Any:
    """Return plain values, None in place of what is not a number."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(inner) for inner in value]
    return value
