"""Worlds that end badly: four ranks each, started without a launcher that would end the others when one fails.

    python -m tests.loader.caching.shared_losses FOLDER SAMPLES WORLD...

Ranks are forks of one process, which has imported everything and started no thread; what a launcher around it has set
is taken away. For every world it prints what
each rank said, how it ended, and whether by itself.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import voxload
from tests.loader.caching.shared_faults import FAULT, shared_tiers
from tests.loader.caching.shared_world import (
    LAUNCHERS,
    RANKS,
    Case,
    common_steps,
    expected,
    gathered,
    loader_words,
    open_data,
    train,
)
from tests.support.processes import LIMIT as LIMIT_OF_ALL
from voxload.errors import StorageError
from voxload.loader import agreement
from voxload.prefetch import policies
from voxload.prefetch.line import MEMORY, EpochOrder, Held, Line, Room
from voxload.readers.protocol import ReadCost, Volume

VICTIM = 1
WAIT = 8.0
"""Seconds that ranks wait for each other in the world where one neither ends nor answers; less, and a rank that a busy
machine keeps off its cores would be taken for it."""
LIMIT = LIMIT_OF_ALL / 2
"""Seconds that a world may take: it decides nothing, for what waits by mistake waits for longer."""
_EPOCHS = ((None,) * 4,) * 2


class MortalDataset(voxload.VolumeDataset):
    """A data set whose storage may go for good."""

    is_gone = is_stuck = False

    def read_into(self, index: int, volumes: Sequence[Volume], **which: int | None) -> ReadCost:
        """Read while there is something."""
        if self.is_gone:
            raise StorageError(self.locations(index)[0].path, found="Input/output error", remedy="check the storage")
        if self.is_stuck:
            threading.Event().wait()
        return super().read_into(index, volumes, **which)


def _gone(data: MortalDataset) -> None:
    data.is_gone = True


def _stuck(data: MortalDataset) -> None:
    data.is_stuck = True


def _killed(_data: MortalDataset) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class World:
    """Four ranks and the fault that comes over one of them."""

    name: str
    peers: str
    fault: Callable[[MortalDataset], None]
    order: str = "shuffled"
    is_in_step: bool = True
    """Whether ranks do something together after each step, as training does."""
    wait: float = 2 * LIMIT
    """Seconds that ranks wait for each other: who does not learn what happened to another one does not end in time."""
    timeout: float = 0
    """Of the loader, on the rank that the fault comes over."""


WORLDS = (
    World("gone", "tcp", _gone),
    World("killed", "tcp", _killed, is_in_step=False),
    World("killed, orders exchanged", "auto", _killed, order="unknown", is_in_step=False),
    World("stuck", "auto", _stuck, wait=WAIT),
    World("stuck, timed", "auto", _stuck, timeout=WAIT),
)


def be(world: World, rank: int, folder: Path, samples: Path) -> None:
    """Be one rank of a world; what it sees is left in a file."""
    sys.stderr = (folder / f"{rank}.log").open("w")
    faulthandler.dump_traceback_later(LIMIT * 0.6, file=sys.stderr)
    wait = timedelta(seconds=world.wait)
    agreement.AGREEMENT_TIMEOUT = wait
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=RANKS, timeout=wait)
    data = open_data(samples, MortalDataset)
    assert isinstance(data, MortalDataset)
    case = Case(world.name, peers=world.peers, memory=2, order=world.order, lengths=_EPOCHS)
    wanted = expected(case, data)
    common = common_steps(gathered(wanted)) if world.is_in_step else [0] * len(wanted)
    words = loader_words(case, data) | (
        {"timeout": world.timeout, "num_workers": 2} if world.timeout and rank == VICTIM else {}
    )
    loader = voxload.DataLoader(data, cache=case.cache(folder), **words)
    row: dict[str, Any] = {"segment": "", "error": "", "same": True, "epochs": 0}

    def act(epoch: int, step: int) -> None:
        row["segment"] = getattr(shared_tiers(loader).tiers[MEMORY], "path", "")
        if (epoch, step) == (0, 0):
            (folder / f"{rank}.json").write_text(json.dumps(row))
        if rank == VICTIM and (epoch, step) == FAULT:
            (folder / "fault").touch()
            world.fault(data)

    found: list[list[int]] = []
    try:
        found.extend(train(loader, _EPOCHS[0], common, act))
    except Exception as error:
        row["error"] = f"{type(error).__name__}: {error}"
        raise
    finally:
        row["same"] = found == wanted[: len(found)]
        row["epochs"] = len(found)
        (folder / f"{rank}.json").write_text(json.dumps(row))
    loader.close()


def watch(children: Sequence[int], folder: Path) -> list[dict[str, Any]]:
    """Wait for all ranks, at most so long; one that is left alone is told to end, as launchers do."""
    handles = {os.pidfd_open(child): rank for rank, child in enumerate(children)}
    ends: set[int] = set()
    poll, deadline = select.poll(), time.monotonic() + LIMIT
    for handle in handles:
        poll.register(handle, select.POLLIN)
    while len(ends) < len(children) and (left := deadline - time.monotonic()) > 0:
        for handle, _ in poll.poll(left * 1000):
            ends.add(handles[handle])
            poll.unregister(handle)
        if len(ends) == len(children) - 1 and VICTIM not in ends:
            poll.poll(WAIT * 1000)  # it may end by itself
            os.kill(children[VICTIM], signal.SIGTERM)
    for rank, child in enumerate(children):
        if rank not in ends:
            os.kill(child, signal.SIGKILL)
    for handle in handles:
        os.close(handle)
    found = []
    for rank, child in enumerate(children):
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        row = json.loads((folder / f"{rank}.json").read_text())
        found.append(row | {"code": code, "is_late": rank not in ends, "faulty": (folder / "fault").exists()})
    return found


def warm() -> None:
    """Compile, or load, what every fork would else load for itself; it starts no thread."""
    policy = policies.named("clairvoyant")
    line = Line(np.full(2, 1, np.int64), (Room(1, 1),) * 2)
    policy.place(policy.begin(line, Held.nothing()), EpochOrder(0, np.zeros((2, 1, 1), np.int64)), ())
    gc.freeze()  # what is never collected stays shared


def run(world: World, place: Path, samples: Path) -> list[dict[str, Any]] | None:
    """Return what each rank of a world said and how it ended; None in the ranks themselves."""
    place.mkdir(parents=True)
    children = []
    for rank in range(RANKS):
        child = os.fork()
        if not child:
            be(world, rank, place, samples)
            return None
        children.append(child)
    return watch(children, place)


def main(folder: Path, samples: Path, names: Sequence[str]) -> None:
    """Run the worlds that compute one after the other, and each of those that mostly wait beside them."""
    for name in [name for name in os.environ if name.startswith(LAUNCHERS)]:
        del os.environ[name]
    worlds = [world for world in WORLDS if world.name in names]
    torch.set_num_threads(1)
    warm()
    beside = {}
    for world in sorted(worlds, key=lambda one: one.fault is not _stuck):
        place = folder / world.name
        is_beside = world.fault is _stuck
        if is_beside:
            child = os.fork()
            if child:
                beside[child] = place
                continue
        rows = run(world, place, samples)
        if rows is None:
            return
        (place / "rows.json").write_text(json.dumps(rows))
        if is_beside:
            return
    for child in beside:
        os.waitpid(child, 0)
    found = {world.name: json.loads((folder / world.name / "rows.json").read_text()) for world in worlds}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
