"""Dealt: four sample groups of one rank each that load epochs through a cache, and count what came from where.

``python -m bench.prefetching.dealt PLAN`` is one of them, under torchrun.
"""

from __future__ import annotations

import json
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import voxload
from voxload.cache.memory.layout import Layout
from voxload.launch.processes import emit, launch_ranks, run_rank
from voxload.prefetch.line import Line, Room

_MODULE = "bench.prefetching.dealt"
RANKS = 4
SOURCES = ("storage", "peer")
BATCH = 2


@dataclass(frozen=True, slots=True)
class Setting:
    """What ranks load."""

    folder: str
    """Of equal volumes as ``.npy``."""
    epochs: int
    share: float
    """Part of the data set that all memories together hold."""
    policy: str
    locality: str | None


@dataclass(frozen=True, slots=True)
class Counted:
    """What came of it."""

    line: Line
    """Sizes and rooms as plans take them."""
    nbytes: dict[str, list[int]]
    """By source, the bytes of all ranks in each epoch, in what plans take a block to have."""


def write(folder: Path, *, samples: int, edge: int) -> None:
    """Write volumes of noise."""
    rng = np.random.default_rng(1)
    for index in range(samples):
        np.save(folder / f"s{index:05}.npy", rng.integers(0, 1000, (edge,) * 3).astype(np.int16))


def counted(setting: Setting) -> Counted:
    """Return what four ranks counted; raises VoxloadError: what one of them raised."""
    events: list[dict[str, Any]] = []
    plan = json.dumps({name: getattr(setting, name) for name in Setting.__slots__})
    launch_ranks(_MODULE, plan, processes=RANKS, subject=setting.policy, hear=events.append)
    one = events[0]
    nbytes = {kind: np.sum([event[kind] for event in events], axis=0).tolist() for kind in SOURCES}
    return Counted(Line(np.array(one["sizes"]), tuple(Room(room, 0) for room in one["rooms"])), nbytes)


def work(text: str) -> None:
    """Be one of the ranks, with the text of the plan."""
    setting = Setting(**json.loads(text))
    dist.init_process_group("gloo")
    grid = voxload.ProcessGrid.from_env((1, 1, 1))
    with closing(voxload.VolumeDataset(f"{setting.folder}/*.npy", grid=grid)) as data:
        block = data.layout(0)[0].nbytes
        footprint, held = block + 256, int(setting.share * len(data) / RANKS)
        room = Layout.within(2**16, None).data_at + held * footprint
        cache = voxload.Cache(
            memory=RANKS * room, policy=setting.policy, epochs=setting.epochs, locality=setting.locality
        )
        with closing(voxload.DataLoader(data, BATCH, shuffle=True, cache=cache)) as loader:
            found, one = {kind: [0] for kind in SOURCES}, torch.zeros(1)
            for _ in range(setting.epochs):
                for _batch in loader:
                    dist.all_reduce(one)
                for kind, fetches in found.items():
                    fetches.append(loader.stats().sources[kind].fetches)
    told = {kind: [footprint * int(count) for count in np.diff(fetches)] for kind, fetches in found.items()}
    sizes, rooms = [footprint] * len(data), [held * footprint] * RANKS
    emit({"event": "counted", "sizes": sizes, "rooms": rooms, **told})
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(run_rank(_MODULE, sys.argv[1:], work))
