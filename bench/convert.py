"""Claim: converting costs little more than to read, compress and write the same bytes, in bounded memory.

`copy`: universes of 512^3 x 4 counts convert at no less than 0.6 of the speed of a program that reads pieces of 2 MiB,
compresses them with the same codec in two threads and writes them one behind the other. Asked for as well: a peak of at
most 1 GiB, and every byte of the source read once.
`rechunk`: one contiguous universe into chunks of 64^3, against h5repack (into HDF5), and against zarr-python and
rechunker (into Zarr), at least twice as fast as the fastest of those that run here; with memory and bytes moved.
`layout`: bytes that the eight ranks of a (2, 2, 2) grid decode for those that they want, at most 1.02 times as many
without halo and 1.15 with a halo of 1 that ends at the border; and files of 64 to 512 MiB. A periodic halo is shown.
`memory`: one universe of 512^3 x 4 counts (1 GiB), some of them noise that no codec makes smaller, converts within
512 MiB of memory, interpreter and libraries included, into Zarr and into HDF5, and equals its source bit for bit.

Every turn is a process of its own, and what it wrote is removed after it; contenders take turns within a round, and
goals are medians of ratios of one round. Times are those of the work and its flush to the device, without the start of
the interpreter. The page cache is warmed before each turn, or emptied with --cold. The exit status is 1 when something
that was asked for was not reached. The peak is VmHWM, the bytes are rchar and wchar of /proc/self/io.

    python bench/convert.py --task copy --folder SCRATCH
    python bench/convert.py --task copy,rechunk,layout,memory --cubes 1 --extent 256 --rounds 3 --json convert.json

rechunker 0.5 needs a zarr and a dask older than this project's (2.18 and 2024.8 do): give a Python that has all three
with --rechunker VENV/bin/python.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.converting.copying import copying
from bench.converting.layout import layout
from bench.converting.memory import memory
from bench.converting.rechunking import rechunking
from bench.converting.turn import Task
from bench.harness import machine, script
from bench.harness.findings import Outcome, conclude

_TASKS: Mapping[str, Callable[[Path, Task], Outcome]] = {
    "copy": copying,
    "rechunk": rechunking,
    "layout": layout,
    "memory": memory,
}


def main(words: Sequence[str] | None = None) -> int:
    """Measure; the exit status is 1 when something that was asked for was not reached."""
    options = _parser().parse_args(words)
    task = Task(options.cubes, options.extent, options.rounds, options.cold, options.compression, options.rechunker)
    console = Console(width=max(Console().width, 150))
    facts = machine.describe()
    console.print(
        ", ".join(f"{name} {facts[name]}" for name in ("processor", "cores", "python", "zarr", "h5py")), highlight=False
    )
    outcomes: dict[str, Outcome] = {}
    with script.folder(options.folder) as folder:
        for name in options.task:
            outcomes[name] = _TASKS[name](folder, task)
            outcomes[name].show(console)
    return conclude(console, outcomes, {"machine": facts, "task": asdict(task)}, options.json)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Time and weigh the conversion of raw universes.")
    add = parser.add_argument
    add("--task", type=script.names(*_TASKS), default=("copy",), help=f"some of {','.join(_TASKS)} (copy)")
    add("--cubes", type=script.number, default=8, help="universes of the copy (8)")
    add("--extent", type=script.number, default=512, help="voxels along each axis (512)")
    add("--rounds", type=script.number, default=5, help="turns of each contender (5)")
    add("--compression", choices=("lz4", "zstd"), default="lz4", help="codec of Zarr chunks (lz4)")
    add("--cold", action="store_true", help="empty the page cache of the sources before each turn")
    add("--folder", type=Path, help="where universes are made, and kept; a temporary one if not given")
    add("--rechunker", default="", metavar="PYTHON", help="a Python that has rechunker and a zarr before 3")
    add("--json", type=Path, help="write every figure to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
