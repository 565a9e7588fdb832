"""What ranks that share a cache load: the data, the orders, the loaders, and the stream that torch gives."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle, product
from pathlib import Path
from random import Random
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import RandomSampler, Sampler

import voxload
from voxload.cache.memory.layout import Layout
from voxload.grid import ProcessGrid
from voxload.loader.sampler import GroupSampler
from voxload.prefetch import policies

Spatial = tuple[int, int, int]
SPATIAL: Spatial = (2, 1, 1)
GROUPS, RANKS = 2, 4
GRIDS: tuple[Spatial, ...] = (SPATIAL, (1, 1, 1), (1, 2, 2))
"""Two groups of two ranks, four of one, and one of four; the last one's blocks have a halo."""
BLOCK = 4 * 8 * 8 * 4 * 2
"""Bytes of a rank's half of a sample."""
FOOTPRINT = BLOCK + 256
"""Bytes that plans take it to have: those of a file with its header."""
LAUNCHERS = ("RANK", "WORLD_SIZE", "PMI", "OMPI", "SLURM", "LOCAL_", "GROUP_", "TORCHELASTIC", "MASTER_")
"""How the names of what launchers set begin."""
STEP_SECONDS = 60.0
"""Far more than any step takes, and less than a hanging test may."""

Lengths = tuple[int | None, ...]
"""Steps after which each epoch is left; None where it runs to its end."""


@dataclass(frozen=True)
class Case:
    """One loader's life."""

    name: str
    peers: str = "auto"
    policy: str = "clairvoyant"
    memory: int = 0
    """Blocks that each rank has room for."""
    disk: int = 0
    """Blocks for which each rank has room on disk."""
    order: str = "shuffled"
    batch: int = 1
    drop_last: bool = False
    lengths: tuple[Lengths, Lengths] = ((None,) * 3, (None,) * 3)
    """Of groups with an even and with an odd number."""
    spatial: Spatial = SPATIAL
    """Blocks of a sample."""
    words: dict[str, Any] = field(default_factory=dict)
    """Further ones of the cache."""

    @property
    def memory_bytes(self) -> int:
        """Return the room of a node, whose ranks each have the table of a small tier."""
        return RANKS * (Layout.within(2**16, None).data_at + self.memory * FOOTPRINT) if self.memory else 0

    def cache(self, folder: Path) -> voxload.Cache:
        """Return the cache, whose disk, if it has any, is a folder of its own."""
        place: dict[str, Any] = {}
        if self.disk:
            place = {"disk": folder / self.name, "disk_size": 8 + RANKS * self.disk * FOOTPRINT}
        return voxload.Cache(memory=self.memory_bytes, peers=self.peers, policy=self.policy, **place, **self.words)


class Weave(Sampler[int]):
    """A sampler that nobody knows: a part of the samples, begun elsewhere in each epoch and in each group."""

    def __init__(self, samples: int, group: int) -> None:
        self.order = Random(group).sample(range(samples), samples - 2)
        self.turn = 0

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[int]:
        self.turn += 1
        at = self.turn % len(self.order)
        yield from self.order[at:] + self.order[:at]


class Fickle(GroupSampler):
    """One that is taken for torch's, and in its second epoch draws otherwise in group 1 alone."""

    turn = 0

    def __iter__(self) -> Iterator[int]:
        """Return the indices; those of the second epoch are turned round."""
        self.turn += 1
        indices = list(super().__iter__())
        yield from reversed(indices) if self.turn == 2 and self.rank == 1 else indices


def open_data(
    source: Any, kind: type[voxload.VolumeDataset] = voxload.VolumeDataset, spatial: Spatial = SPATIAL
) -> voxload.VolumeDataset:
    """Return the raw universes of a folder, or Zarr hierarchies by their URLs."""
    grid = ProcessGrid(spatial=spatial, world_size=dist.get_world_size(), rank=dist.get_rank())
    words: dict[str, Any] = {"fields": {"x": "full"}, "axes": "DHWC", "grid": grid}
    if spatial == GRIDS[-1]:
        words |= {"halo": 1, "boundary": "periodic"}
    return kind(f"{source}/*.h5", targets="unitPar", **words) if isinstance(source, Path) else kind(source, **words)


def loader_words(case: Case, data: voxload.VolumeDataset) -> dict[str, Any]:
    """Return arguments that choose an order, made anew each time: samplers and generators have a state."""
    group = data.grid.group
    sampler: Any
    match case.order:
        case "own":
            sampler = RandomSampler(data, generator=torch.Generator().manual_seed(group))
        case "unknown":
            sampler = Weave(len(data), group)
        case "fickle":
            sampler = Fickle(data, data.grid, shuffle=True, seed=5, drop_last=case.drop_last)
        case _:
            sampler = GroupSampler(data, data.grid, shuffle=True, seed=5, drop_last=case.drop_last)
    return {"batch_size": case.batch, "drop_last": case.drop_last, "sampler": sampler}


ORDERS = ("shuffled", "own", "unknown", "fickle")


def train(
    loader: torch.utils.data.DataLoader[Any],
    lengths: Lengths,
    common: Sequence[int],
    act: Callable[[int, int], None] = lambda _epoch, _step: None,
) -> Iterator[list[int]]:
    """Give, for each epoch, the checksums of its batches; ranks take the first `common` steps of each together.

    After each step, and before what ranks do together, `act` is called with its epoch and its number.
    """
    one = torch.zeros(1)
    for epoch, (length, together) in enumerate(zip(lengths, common, strict=True)):
        found = []
        for step, batch in enumerate(loader):
            found.append(zlib.crc32(b"".join(part.numpy().tobytes() for part in batch), sum(batch[0].shape)))
            act(epoch, step)
            if step < together:
                dist.all_reduce(one)
            batch[0].zero_()  # a consumer may do with a batch what it likes
            if length is not None and step + 1 >= length:
                break
        yield found


def expected(case: Case, data: voxload.VolumeDataset) -> list[list[int]]:
    """Return the stream that torch's own loader gives."""
    plain = torch.utils.data.DataLoader(data, **loader_words(case, data))
    lengths = case.lengths[data.grid.group % 2]
    return list(train(plain, lengths, [0] * len(lengths)))


def common_steps(streams: Sequence[Sequence[list[int]]]) -> list[int]:
    """Return, by epoch, how many steps all ranks take."""
    return [min(map(len, epochs)) for epochs in zip(*streams, strict=True)]


def gathered(mine: Any) -> list[Any]:
    """Return what each rank gave."""
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, mine)
    return found


ROOMS = {"larger": (14, 0), "half": (1, 2), "tiny": (1, 0)}
"""Blocks in memory and on disk, of eleven samples on two groups."""
_LEFT: tuple[tuple[Lengths, Lengths], ...] = (
    ((None, None, None), (None, None, None)),
    ((None, 2, None, None), (None, 2, None, None)),
    ((2, None, 1), (1, None, 3)),
)


def stream_cases(peers: Sequence[str], rooms: Sequence[str]) -> list[Case]:
    """Return every policy with every room, over the transports and with everything else in turn."""
    chosen = [name for name in policies.NAMES if name not in {"none", "staging"}]
    draw = Random(1)
    ways, orders, left, grids = cycle(peers), cycle(ORDERS), cycle(_LEFT), cycle(GRIDS)
    cases = []
    for (policy, room), way in zip(product(chosen, rooms), ways, strict=False):
        memory, disk = ROOMS[room]
        words = {
            "clairvoyant": draw.random() < 0.7,
            "codec": draw.choice(["none", "bitshuffle-lz4"]),
            "epochs": draw.choice([None, None, 3, 4]),
        }
        case = Case(
            f"{way} {policy} {room}",
            peers=way,
            policy=policy,
            memory=memory,
            disk=disk,
            order=next(orders),
            batch=draw.choice([1, 2]),
            drop_last=draw.random() < 0.5,
            lengths=next(left),
            spatial=next(grids),
            words=words,
        )
        cases.append(case)
    return cases
