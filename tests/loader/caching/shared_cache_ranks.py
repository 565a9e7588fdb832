"""One rank of those that share a cache: lives through many cases and prints what came of each.

    torchrun --nproc-per-node=4 -m tests.loader.caching.shared_cache_ranks PLAN
    mpiexec -n 4 python -m tests.loader.caching.shared_cache_ranks PLAN

PLAN is a JSON file that says what `Plan` says.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import threading
import time
import warnings
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import voxload
from tests.loader.caching.shared_faults import FAULTS, Patch, fault_cases, planner, shared_tiers, volumes
from tests.loader.caching.shared_world import (
    GROUPS,
    STEP_SECONDS,
    Case,
    Spatial,
    common_steps,
    expected,
    gathered,
    loader_words,
    open_data,
    stream_cases,
    train,
)
from voxload.cache.peer.address import PeerAddress, job_token
from voxload.cache.peer.client import TcpPeers
from voxload.loader.caching.blocks import DatasetBlocks
from voxload.loader.caching.items import SampleItems
from voxload.loader.caching.units import SampleUnits
from voxload.loader.sampler import GroupSampler
from voxload.prefetch import policies
from voxload.prefetch.line import MEMORY, EpochOrder, Held
from voxload.prefetch.order.batches import assemble, pack
from voxload.prefetch.simulation.bound import fewest_reads

EPOCHS = 5
AHEAD = 3
"""Epochs that a loader looks ahead."""


@dataclass(frozen=True)
class Plan:
    """What the ranks of one launch live through."""

    folder: str
    """Where the tiers and files of the launch go."""
    few: str
    """Folder of eleven samples."""
    many: str = ""
    """Folder of 64 samples."""
    urls: list[str] = field(default_factory=list)
    """Those of samples behind a server that counts."""
    local: list[str] = field(default_factory=list)
    """The same samples as files."""
    peers: list[str] = field(default_factory=list)
    rooms: list[str] = field(default_factory=list)


def join(folder: Path) -> None:
    """Join the other ranks: as torchrun says, or by a file where MPI started them."""
    wait = timedelta(seconds=STEP_SECONDS)
    if "PMI_RANK" in os.environ:
        rank, world = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"])
        dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=world, timeout=wait)
    else:
        dist.init_process_group("gloo", timeout=wait)


class Stock:
    """Data sets, each opened once, and torch's streams of them, each drawn once: they are most of what lives take."""

    def __init__(self) -> None:
        self._open: dict[tuple[Any, ...], voxload.VolumeDataset] = {}
        self._drawn: dict[tuple[Any, ...], list[list[int]]] = {}

    def get(self, source: Any, kind: type[voxload.VolumeDataset], spatial: Spatial) -> voxload.VolumeDataset:
        """Return a data set."""
        name = (str(source), kind.__name__, spatial)
        if name not in self._open:
            self._open[name] = open_data(source, kind, spatial)
        return self._open[name]

    def wanted(self, case: Case, source: Any) -> list[list[int]]:
        """Return the stream that torch's own loader gives."""
        name = (str(source), case.order, case.batch, case.drop_last, case.lengths, case.spatial)
        if name not in self._drawn:
            self._drawn[name] = expected(case, self.get(source, voxload.VolumeDataset, case.spatial))
        return self._drawn[name]

    def close(self) -> None:
        """Close all."""
        for data in self._open.values():
            data.close()


class Life:
    """One loader's life, from its data set to its figures."""

    def __init__(self, case: Case, source: Any, *, plain: Any = None, patch: Patch | None = None) -> None:
        self.case, self.source = case, source
        self.plain = source if plain is None else plain
        self.patch = patch or Patch()

    def run(self, stock: Stock, folder: Path) -> dict[str, Any]:
        """Return how the stream differs from torch's, and what its blocks took."""
        begin = time.monotonic()
        wanted = stock.wanted(self.case, self.plain)
        data = stock.get(self.source, self.patch.kind, self.case.spatial)
        loader = voxload.DataLoader(data, cache=self.case.cache(folder), **loader_words(self.case, data))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.patch.prepare()
            epochs = train(
                loader,
                self.case.lengths[data.grid.group % 2],
                common_steps(gathered(wanted)),
                lambda epoch, step: self.patch.act(loader, epoch, step),
            )
            found = list(epochs)
            row = {"same": found == wanted, "steps": sum(map(len, found))} | self.figures(loader)
            row |= self.patch.end(data)
            loader.close()
        row["warnings"] = sorted({str(one.message) for one in caught})
        return row | {"seconds": time.monotonic() - begin}

    def figures(self, loader: voxload.DataLoader) -> dict[str, Any]:
        """Return what came from where."""
        sources = loader.stats().sources
        found: dict[str, Any] = {
            kind: {"fetches": one.fetches, "misses": one.misses, "bandwidth": round(one.bandwidth)}
            for kind, one in sources.items()
        }
        tier = shared_tiers(loader).tiers.get(MEMORY)
        return found | {"distrusted": sorted(planner(loader).distrusted), "segment": getattr(tier, "path", "")}


class Counted(Life):
    """One whose reads of the storage are compared with those that were planned and those that no cache could spare."""

    def figures(self, loader: voxload.DataLoader) -> dict[str, Any]:
        """Return also both."""
        line = shared_tiers(loader).line
        orders = self.orders(loader)
        policy = policies.named(self.case.policy)
        state, planned = policy.begin(line, Held.nothing()), 0
        for epoch, order in enumerate(orders):
            placement, state = policy.place(state, order, orders[epoch + 1 : epoch + 1 + AHEAD])
            planned += int(((placement.samples >= 0) & (placement.owner < 0)).sum())
        fewest = int(fewest_reads(line, Held.nothing(), orders).sum())
        return super().figures(loader) | {"planned": planned, "fewest": fewest}

    def orders(self, loader: voxload.DataLoader) -> list[EpochOrder]:
        """Return what all groups draw, from samplers made anew."""
        data, size = volumes(loader), loader.batch_size or 1
        samplers = [
            GroupSampler(data, data.grid.at(data.grid.rank_of(group, (0, 0, 0))), shuffle=True, seed=5)
            for group in range(GROUPS)
        ]
        found = []
        for epoch in range(EPOCHS):
            drawn = [list(sampler) for sampler in samplers]
            cut = [[one[at : at + size] for at in range(0, len(one), size)] for one in drawn]
            found.append(assemble(epoch, [pack(batches, len(data)) for batches in cut]))
        return found


class Stranger(Patch):
    """Somebody who asks a training rank's server without the job's token."""

    def __init__(self) -> None:
        self.answers: dict[str, str] = {}

    def end(self, data: voxload.VolumeDataset) -> dict[str, Any]:
        """Tell what came."""
        return super().end(data) | self.answers

    def act(self, loader: voxload.DataLoader, epoch: int, step: int) -> None:
        """Ask for blocks that surely are there, with the token and with another one."""
        if (epoch, step) != (2, 0):
            return
        addresses: list[PeerAddress] = gathered(shared_tiers(loader)._peer_exchange.address)  # type: ignore[union-attr] # there is one
        tokens: list[bytes] = gathered(shared_tiers(loader)._peer_exchange._token)  # type: ignore[union-attr] # as above
        if dist.get_rank() != 0:
            return
        data = volumes(loader)
        keys = [
            DatasetBlocks(SampleUnits(data, data.layout(0)), SampleItems(data)).keys(one)[0] for one in range(len(data))
        ]
        out = np.zeros(data.layout(0)[0].shape, np.int16)
        for name, token in (("member", tokens[0]), ("stranger", job_token())):
            client = TcpPeers({1: addresses[2].location}, token=token)
            answers = [client.get_into(1, key, out, wait=0) for key in keys]
            self.answers[name] = " ".join(sorted({answer.value for answer in answers}))
            self.answers[f"{name} filled"] = str(bool(out.any()))
            out[:] = 0
            client.close()


def lives(plan: Plan) -> list[Life]:
    """Return all that a plan asks for."""
    few, whole = Path(plan.few), ((None,) * EPOCHS,) * GROUPS
    found = [Life(case, few) for case in stream_cases(plan.peers, plan.rooms)]
    found += [Life(case, few, patch=FAULTS[name]()) for case, name in fault_cases(plan.peers)]
    words: dict[str, Any] = {"lengths": whole, "words": {"epochs": EPOCHS}}
    if plan.many:
        many = Path(plan.many)
        found += [Counted(Case(f"{way} holds", peers=way, memory=33, batch=2, **words), many) for way in plan.peers]
        found += [
            Counted(Case(f"half {policy}", peers=plan.peers[0], policy=policy, memory=16, batch=2, **words), many)
            for policy in ("clairvoyant", "nopfs")
        ]
    if plan.urls:
        served = Case("served", peers="tcp", memory=len(plan.urls), batch=2, **words)
        found.append(Life(served, plan.urls, plain=plan.local, patch=Stranger()))
    return found


def left() -> list[str]:
    """Return the loader's threads that still run; those of readers last as long as the process."""
    lasting = ("voxload-decode", "voxload-fetch")
    names = [thread.name for thread in threading.enumerate()]
    return sorted(name for name in names if name.startswith("voxload-") and not name.startswith(lasting))


def main(path: str) -> None:
    """Live through a plan."""
    faulthandler.dump_traceback_later(2 * STEP_SECONDS, exit=True)
    plan = Plan(**json.loads(Path(path).read_text()))
    torch.set_num_threads(1)
    join(Path(plan.folder))
    stock = Stock()
    found = {life.case.name: life.run(stock, Path(plan.folder) / "tiers") for life in lives(plan)}
    stock.close()
    # One write a rank: launchers join the ranks' output, and two writes would interleave.
    sys.stdout.write(json.dumps({"rank": dist.get_rank(), "cases": found, "left": left()}) + "\n")
    sys.stdout.flush()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
