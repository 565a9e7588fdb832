"""Claim: on storage that is the bottleneck, each stored byte is read once, and no rank waits for what could be there.

Four ranks, two sample groups of two blocks, train for five epochs on samples behind a server on the loopback interface
that is a process of its own: it gives all ranks together one bandwidth, lets each request wait, and logs what it sends.
torch's DataLoader, voxload without a cache, with node-local LRU, and with clairvoyant prefetching read the same samples
in the same order, in turn; every contender is four processes of its own, those of ``voxload bench run``. Before that
each has a round that is not timed, in which every voxel is compared with what was generated. Beside each time stand the
lower bound and what the simulator predicts for this server. The exit status is 1 when something that was asked for was
not reached.

    python bench/prefetch.py --quick
    python bench/prefetch.py --folder DATA --json prefetch.json --plot prefetch.png
    python bench/prefetch.py --contenders clairvoyant,nopfs,first-touch,shards,lru/half,clairvoyant/half
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness import children, script
from bench.harness.findings import Outcome, conclude
from bench.prefetching import plot
from bench.prefetching.forecast import GROUPS, RANKS, SPATIAL, Link, TierRoom, forecast
from bench.prefetching.rank import run_ranks
from bench.prefetching.results import BEST, CAPTION, HALF, PLAIN, TORCH, TRAIN, Row, Run, findings
from bench.prefetching.served import Extent, extents, linked, tally
from tests.support.throttle.process import ThrottledStorage, throttled_storage
from voxload.benchmark.generate.generate import generate
from voxload.benchmark.generate.plan import DatasetPlan
from voxload.benchmark.generate.storage import Storage, StoreFormat
from voxload.benchmark.measure.turns import Turns, in_turns
from voxload.benchmark.run.hosts import describe_host
from voxload.benchmark.run.job import Request
from voxload.benchmark.workload.workload import Emulation, Length, Samples, Share, Supply, Workload
from voxload.prefetch import policies
from voxload.units import parse_bytes

FIELD = f"{TORCH},{PLAIN},lru,{BEST},{BEST}/{HALF},{BEST}/{TRAIN}"
FORMATS = {"zarr": StoreFormat.ZARR3, "hdf5": StoreFormat.HDF5}
_CHANNELS = 4
_PARTS = SPATIAL[0] * 2
"""Chunks of a sample, two for each block."""
_FULL: dict[str, Any] = {"samples": 32, "size": 80, "bandwidth": "16MB", "rounds": 3}
_QUICK: dict[str, Any] = {"samples": 16, "size": 48, "bandwidth": "4MB", "rounds": 1}


@dataclass(frozen=True, slots=True)
class Setup:
    """What all contenders have in common."""

    data: DatasetPlan
    workload: Workload
    """That of voxload without a cache."""
    link: Link
    training: float
    """Seconds of a step that trains."""

    @property
    def title(self) -> str:
        """What tables and plots say of it."""
        return (
            f"{self.data.samples} samples of {_CHANNELS} x {self.data.spatial[0]}^3 int16 "
            f"({self.data.storage.format}), {self.workload.length.epochs} epochs, {GROUPS} groups of "
            f"{RANKS // GROUPS} ranks, batches of {self.workload.share.batch_size}, {self.workload.supply.threads} "
            f"threads or workers a rank; storage: {self.link.bandwidth / 1e6:g} MB/s for all, "
            f"{self.link.latency * 1e3:g} ms a request"
        )

    def room(self, contender: str) -> TierRoom:
        """Return what each rank's memory tier holds: its part of the data set, or of half of it, or nothing."""
        base, *words = contender.split("/")
        together = self.data.samples // (2 if HALF in words else 1) if base in policies.NAMES else 0
        return TierRoom(-(-together // GROUPS), self.data.sample_bytes // SPATIAL[0])

    def told(self, contender: str) -> Workload:
        """Return the workload of a contender."""
        base, *words = contender.split("/")
        supply, emulation = self.workload.supply, self.workload.emulation
        if base == TORCH:
            supply = replace(supply, loader="torch-voxload")
        if base in policies.NAMES:
            supply = replace(supply, memory=RANKS * self.room(contender).file_bytes, policy=base)
        if TRAIN in words:
            emulation = replace(emulation, seconds=str(self.training))
        return replace(self.workload, supply=supply, emulation=emulation)


@dataclass(frozen=True, slots=True)
class Course:
    """What contenders run on."""

    setup: Setup
    storage: ThrottledStorage
    """The server of the samples."""
    voxels: list[Extent]
    """Where they are in what it serves."""
    warm_up: Path
    """A data set that each rank reads a sample of first."""

    def run(self, contender: str, *, verify: bool = False) -> Run:
        """Run a contender once, and count what the server sends meanwhile."""
        request = Request(replace(self.setup.told(contender), verify=verify), command=tuple(sys.argv))
        self.storage.forget()
        document = run_ranks(request, warm_up=self.warm_up)
        return Run(document, tally(self.storage.served(), self.voxels))

    def verify(self, contenders: Sequence[str]) -> list[str]:
        """Run each contender without a clock; return what its blocks hold that was not generated."""
        found = []
        for name in contenders:
            wrong = [f"{name}, rank {rank}: {line}" for rank, line in self.run(name, verify=True).wrong]
            print(f"verified: {name:<20} {len(wrong)} blocks of other voxels", flush=True)
            found += wrong
        return found

    def time(self, contenders: Sequence[str], rounds: int) -> Turns[str, Run]:
        """Run all contenders in turn, another one first in each round."""
        runs = itertools.count()

        def run(name: str) -> Run:
            found = self.run(name)
            epochs = " ".join(f"{seconds:.2f}" for seconds in found.epochs)
            turn = next(runs) // len(contenders) + 1
            print(f"round {turn}: {name:<20} {found.seconds:7.2f} s   epochs {epochs}", flush=True)
            return found

        return in_turns(contenders, rounds, run)


def main(words: Sequence[str] | None = None) -> int:
    """Run the comparison; the exit status is 1 when something that was asked for was not reached."""
    options = _parser().parse_args(words)
    os.environ.update(children.environ())  # of the ranks, which import parts of this script
    with script.folder(options.folder) as folder, script.folder(None) as links:
        host = describe_host(str(folder))
        print(", ".join(f"{name} {host[name]}" for name in ("processor", "cores", "python")))
        setup = _setup(options, links)
        data, apart = (folder / f"{options.format}-{options.size}-{name}" for name in (options.samples, "warm-up"))
        generate(data, setup.data)
        generate(apart, replace(setup.data, samples=1))
        # Before anything is timed: what policies compile once on a machine, they compile here.
        forecasts = {
            name: forecast(setup.told(name), options.samples, setup.room(name), setup.link)
            for name in options.contenders
        }
        with throttled_storage(data, **asdict(setup.link)) as storage:
            linked(data, setup.data, storage.url, links)
            course = Course(setup, storage, extents(data, setup.data), apart)
            wrong = course.verify(options.contenders)
            turns = course.time(options.contenders, options.rounds)
    rows = [Row.of(name, runs, forecasts[name]) for name, runs in turns.results.items()]
    print(f"\n{setup.title}\n\n{script.table(rows)}\n\n{CAPTION}\n")
    console = Console(width=max(Console().width, 132))
    outcome = Outcome(tuple(findings(turns, forecasts, wrong)), others=turns.others, wrong=tuple(wrong))
    outcome.show(console)
    contenders = [
        script.document(row)
        | {
            "memory": setup.told(row.contender).supply.memory,
            "forecast": asdict(forecasts[row.contender]),
            "runs": [run.as_dict() for run in turns.results[row.contender]],
        }
        for row in rows
    ]
    if options.plot:
        plot.draw(turns.results, forecasts, options.plot, title=setup.title)
    plan = {"title": setup.title, **asdict(setup.link)}
    about = {"machine": host, "plan": plan, "contenders": contenders}
    return conclude(console, {"prefetching": outcome}, about, options.json)


def _contenders(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        base, *words = name.split("/")
        known = {HALF, TRAIN} if base in policies.NAMES else {TRAIN}
        if base not in (TORCH, PLAIN, *policies.NAMES) or not set(words) <= known:
            raise argparse.ArgumentTypeError(
                f"{name!r}: expected {TORCH}, {PLAIN} or one of {', '.join(policies.NAMES)}; behind any of them "
                f"/{TRAIN}, behind the latter /{HALF} too"
            )
    return names


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Time five epochs on slow storage, with and without a cache.")
    add = parser.add_argument
    add("--quick", action="store_true", help="few and small samples, one round: shows that it runs, proves little")
    add("--contenders", type=_contenders, default=FIELD, help=f"with commas; policies too ({FIELD})")
    add("--format", choices=FORMATS, default="zarr", help="how samples are stored (zarr)")
    add("--samples", type=script.number, help="samples, a multiple of 2 (32)")
    add("--size", type=script.number, help="voxels along each axis, a multiple of 4 (80)")
    add("--epochs", type=script.number, default=5, help="epochs (5)")
    add("--batch", type=script.number, default=2, help="samples of a batch (2)")
    add("--threads", type=script.number, default=2, help="threads, or torch's worker processes, of each rank (2)")
    add("--seed", type=int, default=7, help="seed of the shuffling (7)")
    add("--bandwidth", help="bytes per second that all ranks share (16MB)")
    add("--latency", type=float, default=0.005, help="seconds that each request waits (0.005)")
    add("--compute", type=float, default=0.02, help="seconds of a step (0.02)")
    add("--train", type=float, default=0.1, help="seconds of a step of contenders with /train (0.1)")
    add("--rounds", type=script.number, help="times that each contender runs (3)")
    add("--folder", type=Path, help="where samples are written, and found again; a temporary one by default")
    add("--json", type=Path, help="write every figure to this file")
    add("--plot", type=Path, help="draw the times into this PNG file")
    return parser


def _setup(options: argparse.Namespace, links: Path) -> Setup:
    """Return what the options ask for, on samples that a folder lists; --quick changes only what was not given."""
    for name, value in (_QUICK if options.quick else _FULL).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    count, extent = options.samples, options.size
    if extent % _PARTS:
        raise SystemExit(f"--size {extent}: expected a multiple of {_PARTS}, so that no two blocks share a chunk")
    if count % GROUPS:
        raise SystemExit(f"--samples {count}: expected a multiple of {GROUPS}, so that no epoch leaves a sample out")
    storage = Storage(FORMATS[options.format], chunks=(_CHANNELS, extent // _PARTS, extent, extent))
    return Setup(
        data=DatasetPlan((_CHANNELS, extent, extent, extent), "<i2", storage, samples=count),
        workload=Workload(
            Samples(str(links), allow_outside=True),
            Share(SPATIAL, batch_size=options.batch, seed=options.seed),
            Length(options.epochs),
            Supply(threads=options.threads),
            Emulation("sleep", str(options.compute)),
        ),
        link=Link(float(parse_bytes(options.bandwidth)), options.latency),
        training=options.train,
    )


if __name__ == "__main__":
    sys.exit(main())
