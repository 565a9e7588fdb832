"""Claim: what voxload measures of a run is what the DLIO benchmark reports of it.

DLIO runs two workloads, like MLPerf Storage's unet3d and cosmoflow and scaled down, on compressed and on plain files,
with voxload's plug-in as its data loader and with its own, in one process and in two. Printed is the accelerator
utilisation that DLIO reports, and the one that follows from the steps that the plug-in timed. The exit status is 1
when they differ by more than 2 points.
Compare loaders on a machine that has nothing else to do.

    python bench/dlio.py --python DLIO-ENVIRONMENT/bin/python
    python bench/dlio.py --python DLIO-ENVIRONMENT/bin/python --workloads cosmoflow --ranks 1 --folder DATA
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness.script import folder, names, number
from voxload.benchmark.dlio.journal import read_records
from voxload.benchmark.measure.figures import utilisation

AGREEMENT = 2.0
"""Points of AU that both may differ by."""
WARMUP = 1
"""First steps of an epoch that DLIO leaves out."""
TIMEOUT = 1800
"""Seconds for a run."""
FILES = {"gzip": {"dataset.compression": "gzip"}, "plain": {}}
"""What a run says of how its files are written."""
# Small enough for a minute on two cores.
SCALED: dict[str, dict[str, Any]] = {
    "unet3d": {
        "dataset.num_files_train": 24,
        "dataset.record_length": 2**24,
        "dataset.record_length_stdev": 2**21,
        "dataset.generation_buffer_size": 2**24,
        "reader.batch_size": 2,
        "reader.read_threads": 1,
        "train.computation_time": 0.1,
        "train.epochs": 3,
    },
    "cosmoflow": {
        "dataset.num_files_train": 96,
        "reader.batch_size": 4,
        "reader.read_threads": 1,
        "train.computation_time": 0.05,
        "train.epochs": 3,
    },
}
"""What is smaller than in the workload files."""
LOADERS = {"voxload": {}, "dlio": {"reader.data_loader_classname": None, "reader.data_loader_sampler": "index"}}
"""What a run says of its loader."""
COLUMNS = "workload   files  loader   ranks  AU of DLIO  AU measured  difference  samples/s  compute/step"


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python with dlio_benchmark and voxload installed."""

    path: Path

    def command(self, ranks: int) -> list[str]:
        """Return what starts DLIO; raises FileNotFoundError when a program is not installed beside the interpreter."""
        programs = [self._beside("dlio_benchmark")]
        if ranks > 1:
            programs = [self._beside("mpiexec"), "-n", str(ranks), *programs]
        return programs

    def _beside(self, name: str) -> str:
        found = shutil.which(name, path=os.fspath(self.path.parent)) or shutil.which(name)
        if found is None:
            raise FileNotFoundError(f"{name} is neither beside {self.path} nor on the path")
        return found


@dataclass(frozen=True, slots=True)
class Case:
    """What a line is of."""

    workload: str
    files: str
    loader: str
    ranks: int


@dataclass(frozen=True, slots=True)
class Run:
    """One run of DLIO."""

    workload: str
    """Name of a workload file."""
    words: Mapping[str, Any]
    """What of the workload is said otherwise, by dotted name below ``workload``."""
    ranks: int = 1
    options: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the plug-in."""


class DlioError(RuntimeError):
    """DLIO ended with an error; the message has the end of what it printed."""


def launch(interpreter: Interpreter, run: Run, folder: Path, *, output: str) -> Path:
    """Run DLIO in `folder` and return its output folder there; raises DlioError when it fails."""
    words = {"output.folder": output, **run.words}
    command = [
        *interpreter.command(run.ranks),
        "hydra.searchpath=[pkg://voxload.benchmark.dlio]",
        f"workload={run.workload}",
        *(f"++workload.{name}={_said(value)}" for name, value in words.items()),
    ]
    environ = os.environ | {"HYDRA_FULL_ERROR": "1", "TF_CPP_MIN_LOG_LEVEL": "3"} | dict(run.options)
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    if done.returncode:
        raise DlioError(f"{' '.join(command)}: exit status {done.returncode}\n{(done.stdout + done.stderr)[-4000:]}")
    return folder / output


def generate(interpreter: Interpreter, run: Run, folder: Path) -> None:
    """Let one process write the files of a run; raises DlioError when it fails."""
    words = {**run.words, "workflow.generate_data": True, "workflow.train": False}
    launch(interpreter, Run(run.workload, words), folder, output="generated")


def summary(output: Path) -> dict[str, Any]:
    """Return the metrics that DLIO wrote."""
    found: dict[str, Any] = json.loads((output / "summary.json").read_text(encoding="utf-8"))["metric"]
    return found


def _said(value: Any) -> str:
    """Return a value as Hydra's command line has it."""
    return "null" if value is None else str(value)


@dataclass(frozen=True, slots=True)
class Figures:
    """Accelerator utilisation of a run, in percent."""

    dlio: float
    """As DLIO has it."""
    ours: float | None
    """As `voxload.benchmark.measure.figures` makes it out of what the plug-in measured; None for DLIO's own loader."""
    samples_per_second: float
    """As DLIO has it."""
    compute: float | None
    """Mean seconds of the emulated computing of a step."""

    @property
    def difference(self) -> float | None:
        """Points by which ours lies above DLIO's."""
        return None if self.ours is None else self.ours - self.dlio

    @property
    def agrees(self) -> bool:
        """Whether both are the same within `AGREEMENT`; there is nothing to disagree with for DLIO's own loader."""
        return self.difference is None or abs(self.difference) <= AGREEMENT


def figures(output: Path, *, is_ours: bool) -> Figures:
    """Return the figures of a run in its output folder; raises NotFoundError when the plug-in has written nothing."""
    metric = summary(output)
    ours = compute = None
    if is_ours:
        records = read_records(output)
        found = utilisation(records, warmup=WARMUP)
        ours = None if found is None else 100 * found
        compute = fmean(each for record in records for epoch in record.epochs for each in epoch.steps.compute)
    return Figures(
        dlio=float(metric["train_au_mean_percentage"]),
        ours=ours,
        samples_per_second=float(metric["train_throughput_mean_samples_per_second"]),
        compute=compute,
    )


def _runs(words: argparse.Namespace, place: Path) -> Iterator[tuple[Case, Figures]]:
    interpreter = Interpreter(words.python)
    for workload, files in product(words.workloads, words.files):
        name, scaled = f"{workload}_voxload", SCALED[workload] | FILES[files]
        base = place / files  # DLIO names its folder of data by the workload alone
        base.mkdir(exist_ok=True)
        if not (base / "data" / name / "train").is_dir():
            generate(interpreter, Run(name, scaled), base)
        for ranks, loader in product(words.ranks, words.loaders):
            run = Run(name, scaled | LOADERS[loader], ranks)
            output = launch(interpreter, run, base, output=f"{workload}-{loader}-{ranks}")
            yield Case(workload, files, loader, ranks), figures(output, is_ours=loader == "voxload")


def _line(case: Case, each: Figures) -> str:
    ours = "-" if each.ours is None else f"{each.ours:.1f} %"
    difference = "-" if each.difference is None else f"{each.difference:+.2f}"
    compute = "-" if each.compute is None else f"{1000 * each.compute:.1f} ms"
    return (
        f"{case.workload:<10} {case.files:<5}  {case.loader:<8} {case.ranks:>5}  {each.dlio:>8.1f} %  {ours:>11}"
        f"  {difference:>10}  {each.samples_per_second:>9.1f}  {compute:>12}"
    )


def _ranks(text: str) -> tuple[int, ...]:
    return tuple(map(number, text.split(",")))


def main(arguments: list[str] | None = None) -> int:
    """Run all, print a line each, and return 1 when both figures of a run disagree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--python", type=Path, default=Path(sys.executable), help="an interpreter with dlio_benchmark")
    add("--folder", type=Path, help="where data and outputs go and stay; a temporary one by default")
    add("--workloads", type=names(*SCALED), default=tuple(SCALED))
    add("--files", type=names(*FILES), default=tuple(FILES))
    add("--loaders", type=names(*LOADERS), default=tuple(LOADERS))
    add("--ranks", type=_ranks, default=(1, 2), help="such as 1,2")
    add("--json", type=Path, help="write the figures there")
    words = parser.parse_args(arguments)
    found = []
    print(COLUMNS)
    with folder(words.folder) as place:
        for case, each in _runs(words, place.resolve()):
            print(_line(case, each), flush=True)  # a run takes minutes
            found.append({**asdict(case), **asdict(each), "ok": each.agrees})
    if words.json is not None:
        words.json.write_text(json.dumps(found, indent=2), encoding="utf-8")
    return 0 if all(each["ok"] for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
