"""The command line of bench/dlio.py."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.arguments import folder, names
from bench.underdlio.figures import Figures, figures
from bench.underdlio.launch import Interpreter, Run, generate, launch

# Small enough for a minute on two cores; compressed, so that reading takes about as long as computing.
SCALED: dict[str, dict[str, Any]] = {
    "unet3d": {
        "dataset.num_files_train": 24,
        "dataset.record_length": 2**24,
        "dataset.record_length_stdev": 2**21,
        "dataset.generation_buffer_size": 2**24,
        "dataset.compression": "gzip",
        "reader.batch_size": 2,
        "reader.read_threads": 1,
        "train.computation_time": 0.1,
        "train.epochs": 3,
    },
    "cosmoflow": {
        "dataset.num_files_train": 96,
        "dataset.compression": "gzip",
        "reader.batch_size": 4,
        "reader.read_threads": 1,
        "train.computation_time": 0.05,
        "train.epochs": 3,
    },
}
"""What is smaller than in the workload files."""
LOADERS = {"voxload": {}, "dlio": {"reader.data_loader_classname": None, "reader.data_loader_sampler": "index"}}
"""What a run says of its loader."""
COLUMNS = "workload   loader   ranks  AU of DLIO  AU measured  difference  samples/s  compute/step"


def main(arguments: list[str] | None = None) -> int:
    """Run all, print a line each, and return 1 when both figures of a run disagree."""
    args = _parser().parse_args(arguments)
    found = []
    print(COLUMNS)
    with folder(args.folder) as place:
        for workload, loader, ranks, each in _runs(args, place.resolve()):
            print(_line(workload, loader, ranks, each), flush=True)
            found.append({"workload": workload, "loader": loader, "ranks": ranks, **asdict(each), "ok": each.agrees})
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=2), encoding="utf-8")
    return 0 if all(each["ok"] for each in found) else 1


def _runs(args: argparse.Namespace, place: Path) -> Iterator[tuple[str, str, int, Figures]]:
    interpreter = Interpreter(args.python)
    for workload in args.workloads:
        words = SCALED[workload]
        if not (place / "data" / f"{workload}_voxload" / "train").is_dir():
            generate(interpreter, Run(f"{workload}_voxload", words), place)
        for loader in args.loaders:
            for ranks in args.ranks:
                run = Run(f"{workload}_voxload", words | LOADERS[loader], ranks)
                output = launch(interpreter, run, place, output=f"{workload}-{loader}-{ranks}")
                yield workload, loader, ranks, figures(output, is_ours=loader == "voxload")


def _line(workload: str, loader: str, ranks: int, each: Figures) -> str:
    ours = "-" if each.ours is None else f"{each.ours:.1f} %"
    difference = "-" if each.difference is None else f"{each.difference:+.2f}"
    compute = "-" if each.compute is None else f"{1000 * each.compute:.1f} ms"
    return (
        f"{workload:<10} {loader:<8} {ranks:>5}  {each.dlio:>8.1f} %  {ours:>11}  {difference:>10}"
        f"  {each.samples_per_second:>9.1f}  {compute:>12}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="an interpreter with dlio_benchmark")
    parser.add_argument("--folder", type=Path, help="where data and outputs go and stay; a temporary one by default")
    parser.add_argument("--workloads", type=names(*SCALED), default=tuple(SCALED))
    parser.add_argument("--loaders", type=names(*LOADERS), default=tuple(LOADERS))
    parser.add_argument("--ranks", type=_ranks, default=(1, 2), help="such as 1,2")
    parser.add_argument("--json", type=Path, help="write the figures there")
    return parser


def _ranks(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))
