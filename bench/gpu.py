"""Claim: what was written for GPUs does on one what it does on the host, and as fast as its bus and memory allow.

One command answers all that is open on GPUs: the tests marked ``gpu``, then the measurements, each part in a process of
its own with a limit of its own, so that one that fails or hangs loses only itself. It ends with a table of every claim:
what was asked, what was measured, and whether that holds. The figures go to OUTPUT/gpu.json, with a picture of copies
and computation for each network that trains, and a log for each part.

Nothing needs to be installed but what voxload needs: parts that lack something are skipped by name. The exit status is
1 when something failed or was not reached, 2 when there is no GPU, or no torch. Parts repeated with ``--only`` take the
place of their earlier figures in OUTPUT/gpu.json, where those are of the same machine.

    python -m bench.gpu
    python -m bench.gpu --only transfer,joins
    python -m bench.gpu --device cpu        # all parts through the same code, at small sizes: no figure means anything
    python -m bench.gpu --device cpu --only transfer,transforms,cosmoflow --output HOST     # delivery, and its picture
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness import script
from bench.proving import report, told
from bench.proving.parts import BUDGET, NAMES, Part, chosen, is_there
from bench.proving.running import Ended, run_part, skipped

_CUDA, _HOST = "cuda", "cpu"
_STOPS = (signal.SIGINT, signal.SIGTERM)
"""Ctrl-C, and what a batch system sends: the part under way is ended, and what had ended before is told."""
_TORCH = (2, 13)
"""The oldest that voxload takes."""


def main(words: Sequence[str] | None = None) -> int:
    """Prove; returns 1 where something failed or was not reached, 2 where there is nothing to prove it on."""
    parser = _parser()
    options = parser.parse_args(words)
    try:
        faults = told.share_out(NAMES, options.fault)
    except ValueError as error:
        parser.error(str(error))
    lack = _lack(options.device)
    if lack:
        print(f"bench.gpu: {lack}", file=sys.stderr)
        return 2
    options.output.mkdir(parents=True, exist_ok=True)
    document = options.output / "gpu.json"
    try:  # before minutes are spent; a whole run keeps nothing
        earlier = report.read(document) if document.exists() and set(options.only) < set(NAMES) else {}
    except ValueError as error:
        parser.error(str(error))
    machine = describe(options.device)
    print(", ".join(f"{name} {value}" for name, value in machine.items()), flush=True)
    parts = chosen(options.only)
    gpus = int(machine["gpus"]) if options.device == _CUDA else max(part.gpus for part in parts)
    for part in parts:  # at once, and not when its turn comes
        if why := part.lacks(is_there, gpus=gpus):
            print(f"{part.name}: skipped, it {why}", flush=True)
    ends: list[Ended] = []
    stopped_by: signal.Signals | None = None
    try:
        with _stoppable():
            for ended in _prove(parts, options, gpus, faults):
                ends.append(ended)
                if ended.seconds:  # it was begun
                    print(f"{ended.part.name}: {ended.seconds:.0f} s", flush=True)
    except KeyboardInterrupt as stop:  # what has ended is told all the same
        stopped_by = signal.Signals(*stop.args)
        print(f"\nstopped by {stopped_by.name}: these are the parts that had ended", flush=True)
    report.show_all(ends, options.output)
    found = report.kept(earlier, report.document(ends, machine))
    document.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"figures, logs and pictures are in {options.output}/")
    if stopped_by:
        return 128 + stopped_by  # as shells have it
    return int(any(row.verdict in report.BAD for ended in ends for row in ended.rows))


def describe(device: str) -> dict[str, str]:
    """Return what the run is on: versions, and the GPUs."""
    torch: Any = importlib.import_module("torch")
    facts = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cores": str(len(os.sched_getaffinity(0))),
    }
    if device == _HOST:
        return facts | {"device": "the host: no figure means anything"}
    properties = torch.cuda.get_device_properties(0)
    return facts | {
        "device": properties.name,
        "memory": f"{properties.total_memory / 2**30:.0f} GiB",
        "gpus": str(torch.cuda.device_count()),
        "cuda": str(torch.version.cuda),
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if torch.distributed.is_nccl_available() else "none",
    }


@contextmanager
def _stoppable() -> Iterator[None]:
    """Let each signal that ends a run raise KeyboardInterrupt, with its number."""

    def stop(number: int, _: object) -> None:
        raise KeyboardInterrupt(number)

    before = [(number, signal.signal(number, stop)) for number in _STOPS]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _prove(parts: Sequence[Part], options: argparse.Namespace, gpus: int, faults: dict[str, str]) -> Iterator[Ended]:
    """Run one part after the other, within the time for all."""
    begin = monotonic()
    for part in parts:
        if why := part.lacks(is_there, gpus=gpus):
            yield skipped(part, why)
            continue
        left = options.seconds - (monotonic() - begin)
        limit = min(options.limit or part.limit, left)
        yield run_part(part, options.device, options.output, limit=limit, fault=faults.get(part.name, ""))


def _lack(device: str) -> str:
    """Return why nothing can be proven here; empty where it can."""
    if not is_there("torch"):
        return "found no torch, expected 2.13 or newer; nothing was proven"
    torch: Any = importlib.import_module("torch")
    if tuple(int(number) for number in torch.__version__.split(".")[:2]) < _TORCH:
        return f"found torch {torch.__version__}, expected 2.13 or newer; nothing was proven"
    if device == _CUDA and not torch.cuda.is_available():
        return "found no GPU that torch can use, nothing was proven; --device cpu runs all parts at small sizes"
    return ""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description="Prove on a GPU what is said of GPUs.")
    add = parser.add_argument
    add("--device", choices=(_CUDA, _HOST), default=_CUDA, help="what to prove it on (cuda)")
    add("--only", type=script.names(*NAMES), default=NAMES, metavar="PART", help=f"some of {','.join(NAMES)}")
    add("--output", type=Path, default=Path("gpu-report"), help="folder for figures, logs and pictures (gpu-report)")
    add("--seconds", type=float, default=float(BUDGET), help=f"for all parts together ({BUDGET})")
    add("--limit", type=float, help="seconds for each part, in place of its own limit")
    add("--fault", action="append", default=[], metavar="PART=FAULT", help=f"let a part {', '.join(told.FAULTS)}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
