"""What goes wrong while ranks share a cache: each fault happens on one rank, in the middle of an epoch."""

from __future__ import annotations

import resource
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

import torch.distributed as dist

import voxload
from tests.loader.caching.shared_world import Case, Lengths
from voxload.cache.memory.tier import MemoryTier
from voxload.cache.peer.channel import Channel
from voxload.cache.peer.client import TcpPeers
from voxload.cache.peer.messages import Request
from voxload.cache.peer.server import PeerServer
from voxload.cache.protocol import Answer
from voxload.errors import StorageError
from voxload.loader.caching.tiers import SharedTiers
from voxload.prefetch.execution.executor import Executor
from voxload.prefetch.line import MEMORY
from voxload.prefetch.planning.planner import Planner
from voxload.readers.protocol import ReadCost, Volume
from voxload.readers.scratch import Bytes

VICTIM = 2
"""The rank that it happens to; rank 0 is on its line."""
FAULT = (1, 2)
"""Epoch and step after which it happens."""
SHORT = 1.0
"""Seconds in which peers must answer, where one does not."""
_EPOCHS: tuple[Lengths, Lengths] = ((None,) * 4, (None,) * 4)


class Patch:
    """One fault; made anew by every rank for every case. This one is none."""

    kind: type[voxload.VolumeDataset] = voxload.VolumeDataset

    def prepare(self) -> None:
        """Act on every rank before the first epoch begins."""

    def begin(self, loader: voxload.DataLoader) -> None:
        """Act on every rank after the first step."""

    def strike(self, loader: voxload.DataLoader) -> None:
        """Act on one rank at the time of the fault."""

    def end(self, data: voxload.VolumeDataset) -> dict[str, Any]:  # noqa: ARG002 - the names are those of methods below
        """Undo what outlives the loader, right before it is closed; return what is to be told."""
        return {}

    def act(self, loader: voxload.DataLoader, epoch: int, step: int) -> None:
        """Do what belongs to a step that was just delivered."""
        if (epoch, step) == (0, 0):
            self.begin(loader)
        if (epoch, step) == FAULT and dist.get_rank() == VICTIM:
            self.strike(loader)


def volumes(loader: voxload.DataLoader) -> voxload.VolumeDataset:
    """Return a loader's data set."""
    assert isinstance(loader.dataset, voxload.VolumeDataset)
    return loader.dataset


def shared_tiers(loader: voxload.DataLoader) -> SharedTiers:
    """Return what a loader has near."""
    assert loader._pipeline is not None
    assert loader._pipeline.prefetcher is not None
    return loader._pipeline.prefetcher.shared_tiers


def planner(loader: voxload.DataLoader) -> Planner:
    """Return a rank's planner; other threads use it."""
    assert loader._pipeline is not None
    assert loader._pipeline.prefetcher is not None
    runner = loader._pipeline.prefetcher._prefetched.runner
    assert isinstance(runner, Executor)
    return runner._driver._planner


def server(loader: voxload.DataLoader) -> PeerServer:
    """Return the server that a rank lends by."""
    exchange = shared_tiers(loader)._peer_exchange
    assert exchange is not None
    assert exchange._server is not None
    return exchange._server


class ServerGone(Patch):
    """A server that ends."""

    def strike(self, loader: voxload.DataLoader) -> None:
        """End it."""
        server(loader).close()


class ServerSilent(Patch):
    """A server that takes requests and answers none."""

    def __init__(self) -> None:
        self.is_over = threading.Event()

    def begin(self, loader: voxload.DataLoader) -> None:
        """Let nobody wait for it for as long as ranks wait in earnest."""
        peers = shared_tiers(loader).near.peers
        far = getattr(peers, "_far", None)
        assert isinstance(far, TcpPeers)
        far._timeout = SHORT

    def strike(self, loader: voxload.DataLoader) -> None:
        """Let what looks for a block never return."""
        service = server(loader)
        lend = service._lend

        def wait(request: Request, channel: Channel) -> tuple[Answer, Bytes | None]:
            self.is_over.wait()
            return lend(request, channel)

        service._lend = wait  # type: ignore[method-assign] # no server hangs by itself

    def end(self, data: voxload.VolumeDataset) -> dict[str, Any]:
        """Let its threads go: the server's own close waits for them."""
        self.is_over.set()
        return super().end(data)


class MemoryGarbage(Patch):
    """Blocks in memory that somebody wrote over."""

    def strike(self, loader: voxload.DataLoader) -> None:
        """Write over all of them."""
        tier = shared_tiers(loader).tiers[MEMORY]
        assert isinstance(tier, MemoryTier)
        tier.memory[tier._layout.data_at :] = 0xFF


def _folder(loader: voxload.DataLoader) -> Path:
    assert loader.cache is not None
    assert loader.cache.folder is not None
    return loader.cache.folder


class DiskGarbage(Patch):
    """Flipped bits on disk."""

    def strike(self, loader: voxload.DataLoader) -> None:
        """Flip some in every block that is there."""
        for path in _folder(loader).rglob("*.block"):
            with path.open("r+b") as file:
                file.seek(path.stat().st_size - 7)
                file.write(b"\x55")


class DiskGone(Patch):
    """A folder that somebody removed."""

    def strike(self, loader: voxload.DataLoader) -> None:
        """Remove it with all blocks of all ranks."""
        shutil.rmtree(_folder(loader))


class DiskFull(Patch):
    """A system that takes no more bytes from one rank, as a limit of file sizes makes it."""

    limits = (0, 0)

    def prepare(self) -> None:
        """Refuse from the first store on: the tier itself still finds room."""
        if dist.get_rank() == VICTIM:
            self.limits = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1024, self.limits[1]))

    def end(self, data: voxload.VolumeDataset) -> dict[str, Any]:
        """Take files again."""
        if dist.get_rank() == VICTIM:
            resource.setrlimit(resource.RLIMIT_FSIZE, self.limits)
        return super().end(data)


class HangingDataset(voxload.VolumeDataset):
    """A data set one of whose reads hangs until it is released."""

    wanted = -1
    """Reads from now on until the one that hangs."""
    released = threading.Event()
    hung = 0

    def read_into(self, index: int, volumes: Sequence[Volume], **which: int | None) -> ReadCost:
        """Read, in the end."""
        self.wanted -= 1
        if self.wanted == -1:
            self.hung += 1
            threading.Timer(0.5, self.released.set).start()
            self.released.wait()
        return super().read_into(index, volumes, **which)


class StorageHangs(Patch):
    """A storage call that hangs for a while."""

    kind = HangingDataset

    def strike(self, loader: voxload.DataLoader) -> None:
        """Let one of the next reads hang."""
        assert isinstance(loader.dataset, HangingDataset)
        loader.dataset.wanted = 1

    def end(self, data: voxload.VolumeDataset) -> dict[str, Any]:
        """Tell whether one did."""
        return {"hung": getattr(data, "hung", 0)}


class FlakyDataset(voxload.VolumeDataset):
    """A data set whose storage refuses one read in twenty, and none twice in a row."""

    refused = 0
    last = -1

    @cached_property
    def draws(self) -> Iterator[bool]:
        """Whether the next read is refused, and so on: the same in every run."""
        draw = Random(10 + self.grid.rank)
        return iter([draw.random() < 0.05 for _ in range(1000)])

    def read_into(self, index: int, volumes: Sequence[Volume], **which: int | None) -> ReadCost:
        """Read, or refuse to."""
        if next(self.draws) and self.last != index:
            self.refused, self.last = self.refused + 1, index
            raise StorageError("this read", found="refused, for the test")
        return super().read_into(index, volumes, **which)


class StorageFlaky(Patch):
    """A storage that refuses reads."""

    kind = FlakyDataset

    def end(self, data: voxload.VolumeDataset) -> dict[str, Any]:
        """Tell how many."""
        return {"refused": getattr(data, "refused", 0)}


FAULTS: dict[str, Callable[[], Patch]] = {
    one.__name__: one
    for one in (
        ServerGone,
        ServerSilent,
        MemoryGarbage,
        DiskGarbage,
        DiskGone,
        DiskFull,
        StorageHangs,
        StorageFlaky,
    )
}


def fault_cases(peers: Sequence[str]) -> list[tuple[Case, str]]:
    """Return the faults that can happen with some transports, and the cases that they happen in."""
    cases = []
    for way in peers:
        names = ["MemoryGarbage"]
        names += ["ServerGone", "ServerSilent", "DiskGarbage"] if way == "tcp" else []
        names += ["DiskGone", "DiskFull", "StorageHangs", "StorageFlaky"] if way == "auto" else []
        names += ["StorageHangs"] if way == "mpi" else []
        for name in names:
            disk, memory = (8, 0) if "Disk" in name else (0, 2 if "Storage" in name else 6)
            cases.append((Case(f"{way} {name}", peers=way, lengths=_EPOCHS, disk=disk, memory=memory), name))
    return cases
