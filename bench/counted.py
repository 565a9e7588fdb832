"""Claim: what `voxload bench run` prints agrees with who counts beside it: throughput and bytes within 5 %.

A loader of another package, registered by an entry point, wraps the one that is measured on every rank. It takes the
time from the first request for a batch to the end of the epoch, and reads /proc/PID/io of its process and of those that
it started, by code of its own. Ranks' times are compared with the benchmark's record, and samples per second and bytes
of read calls with the figures that it prints. The exit status is 1 when a ratio is off by more than 5 %.

    python bench/counted.py
    python bench/counted.py --shrink 2 --samples 8 --loaders voxload,torch-h5py
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness.script import finish, names, number, parser

_LIMIT = 0.05
_WRAPPER = """
import json, os, time
from pathlib import Path
from voxload.benchmark.loaders import registry

def family(pid):
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from family(int(child))

def bytes_read():
    total = 0
    for pid in family(os.getpid()):
        total += int(Path(f"/proc/{pid}/io").read_text().split()[1])
    return total

class Counted:
    def __init__(self, inner, rank):
        self.inner, self.rank, self.rows = inner, rank, []
    def epoch(self, number, indices):
        before, begin = bytes_read(), time.perf_counter()
        samples = 0
        for batch in self.inner.epoch(number, indices):
            samples += len(batch)
            if samples == len(indices):
                self.rows.append([time.perf_counter() - begin, samples, before, bytes_read()])
            yield batch
    def counts(self):
        return self.inner.counts()
    def close(self):
        Path(os.environ["COUNTED"], f"{self.rank}.json").write_text(json.dumps(self.rows))
        self.inner.close()

class Kind:
    name = "counted"
    title = "a loader that is counted"
    needs = ()
    formats = ("hdf5",)
    def build(self, task):
        return Counted(registry.named(os.environ["COUNTED_LOADER"]).build(task), task.grid.rank)
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of a loader's run."""

    loader: str
    figure: str
    printed: float
    counted: float

    @property
    def ratio(self) -> float:
        """What is printed to what was counted."""
        return self.printed / self.counted


def main() -> int:
    """Run each loader; the exit status is 1 when something is off."""
    options = parser(__doc__, folder="samples")
    add = options.add_argument
    add("--loaders", type=names("voxload", "torch-h5py", "h5py"), default=("voxload", "torch-h5py"))
    add("--shrink", type=number, default=2, help="divisor of the extents, 512 (2)")
    add("--samples", type=number, default=6)
    add("--epochs", type=number, default=2)
    words = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="voxload-bench-") as scratch:
        folder = words.folder or Path(scratch)
        rows = [row for loader in words.loaders for row in _rows(loader, *_run(loader, words, Path(scratch), folder))]
    return finish(words, rows, lambda row: abs(row.ratio - 1) <= _LIMIT)


def _run(
    loader: str, options: argparse.Namespace, scratch: Path, folder: Path
) -> tuple[dict[str, Any], dict[int, Any]]:
    """Return the benchmark's result, and what the wrapper counted, by rank.

    That is of each epoch its seconds, its samples, and the bytes read until its begin and its end.
    """
    package = scratch / "counted-package"
    marks = scratch / f"marks-{loader}"
    for each in (package / "counted-1.dist-info", marks):
        each.mkdir(parents=True, exist_ok=True)
    (package / "counted_loader.py").write_text(_WRAPPER)
    (package / "counted-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: counted\nVersion: 1\n")
    (package / "counted-1.dist-info" / "entry_points.txt").write_text(
        "[voxload.benchmark]\ncounted = counted_loader:Kind\n"
    )
    result = scratch / f"{loader}.json"
    words = (
        f"--preset cosmoflow-512 --spatial 2,2,2 --nproc 4 --shrink {options.shrink} --num-samples {options.samples}"
    )
    words += f" --epochs {options.epochs} --folder {folder} --loader counted --output {result}"
    paths = os.pathsep.join(filter(None, (str(package), os.environ.get("PYTHONPATH"))))
    environ = {**os.environ, "PYTHONPATH": paths, "COUNTED": str(marks), "COUNTED_LOADER": loader}
    command = [str(Path(sys.executable).with_name("voxload")), "bench", "run", *words.split()]
    subprocess.run(command, check=True, env=environ, stdout=subprocess.DEVNULL)
    counted = {int(path.stem): json.loads(path.read_text()) for path in marks.glob("*.json")}
    return json.loads(result.read_text()), counted


def _rows(loader: str, printed: dict[str, Any], counted: dict[int, Any]) -> Iterator[Row]:
    """Yield each figure as it was printed, and as it was counted."""
    (run,) = printed["runs"]
    epochs = list(zip(*(counted[rank] for rank in sorted(counted)), strict=True))
    seconds = sum(max(row[0] for row in each) for each in epochs)
    samples = sum(each[0][1] for each in epochs)
    yield Row(loader, "samples/s", run["figures"]["samples_per_second"], samples / seconds)
    # A loader may read the next epoch's samples when the last batch is out: from first to last, then.
    nbytes = sum(rows[-1][3] - rows[0][2] for rows in counted.values())
    yield Row(loader, "bytes of read calls", run["figures"]["read_bytes"], nbytes)


if __name__ == "__main__":
    sys.exit(main())
