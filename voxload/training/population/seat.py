"""Seat: which trainer of a population a process belongs to, where its ranks meet, and where trainers do."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed

from voxload.errors import UsageError, VoxloadError
from voxload.grid import launched_as, ranks_here
from voxload.launch.rendezvous import store_over_mpi
from voxload.training.data import cache_part
from voxload.training.plan import TrainingPlan
from voxload.training.population.rounds import common_round, folder_of, source_of

dist: Any = torch.distributed
"""Stores are public there, and torch does not say so to type checkers."""
TRAINER, MEETING = "VOXLOAD_TRAINER", "VOXLOAD_TRAINERS_MEET_AT"
"""Names of what the process that starts trainers one by one puts into their environment: a number, and HOST:PORT."""
_TIMEOUT = timedelta(minutes=10)
_RESUMED, _NONE = "resumed", "none"


@dataclass(frozen=True, slots=True)
class Seat:
    """Where one process is in its job."""

    rank: int
    """Of its trainer."""
    world_size: int
    """Ranks of its trainer."""
    trainer: int = 0
    """Number of the trainer."""
    meeting: Any = None
    """torch's store of all trainers; None where there is one."""
    store: Any = None
    """torch's store at which the ranks of this trainer meet; None where the launcher says it."""

    @property
    def is_first(self) -> bool:
        """Whether this process speaks for all trainers."""
        return self.rank == 0 and self.trainer == 0


def seat_of(trainers: int, environ: Mapping[str, str]) -> Seat:
    """Return where this process is among so many trainers, by its launcher's variables.

    Raises
    ------
    UsageError
        When the ranks are no whole number for each trainer.
    """
    rank, world_size = launched_as(environ)
    if trainers == 1:
        return Seat(rank, world_size)
    if TRAINER in environ and MEETING in environ:
        host, _, port = environ[MEETING].rpartition(":")
        meeting = dist.TCPStore(host, int(port), is_master=False, timeout=_TIMEOUT)
        return Seat(rank, world_size, int(environ[TRAINER]), meeting)
    size = ranks_of_each(world_size, trainers)
    if "MASTER_ADDR" in environ and "MASTER_PORT" in environ:
        base, _, _ = next(dist.rendezvous("env://", rank, world_size, timeout=_TIMEOUT))
    else:
        base = store_over_mpi(rank, world_size, timeout=_TIMEOUT)
    trainer = rank // size
    own = dist.PrefixStore(f"trainer/{trainer}", base)
    return Seat(rank % size, size, trainer, dist.PrefixStore("trainers", base), own)


def ranks_of_each(world_size: int, trainers: int) -> int:
    """Return how many ranks each trainer has; raises UsageError where they are not alike."""
    if world_size % trainers:
        raise UsageError(
            f"{trainers} trainers",
            found=f"{world_size} ranks",
            expected=f"a multiple of {trainers}",
            remedy="choose --nproc, or the launcher's ranks, as trainers x sample groups x blocks",
        )
    return world_size // trainers


def plan_of(plan: TrainingPlan, trainer: int) -> TrainingPlan:
    """Return the plan of one trainer, with folders of its own, and its part of this node's room for blocks."""
    if plan.trainers == 1:
        return plan
    cache = plan.cache and cache_part(plan.cache, f"trainer-{trainer}", (1, _trainers_here(plan.trainers, os.environ)))
    return replace(
        plan,
        cache=cache,
        output=folder_of(plan.output, trainer),
        tensorboard=plan.tensorboard and folder_of(plan.tensorboard, trainer),
        prometheus=plan.prometheus and _beside(plan.prometheus, trainer),
    )


def _trainers_here(trainers: int, environ: Mapping[str, str]) -> int:
    """Return how many trainers share this node, at most: all of those that were started one by one."""
    if TRAINER in environ:
        return trainers
    size = ranks_of_each(launched_as(environ)[1], trainers)
    return -(-(ranks_here(environ) or size * trainers) // size)


def _beside(path: str, trainer: int) -> str:
    """Return a file of a trainer's own beside one."""
    file = Path(path)
    return os.fspath(file.with_name(f"{file.stem}-{trainer}{file.suffix}"))


def source_for(plan: TrainingPlan, seat: Seat) -> Path | None:
    """Return the folder of the checkpoint that a trainer of several goes on from; None for a trainer alone.

    All go on from the same round, which the first process finds.
    """
    if plan.trainers == 1 or not plan.resume:
        return None
    if seat.is_first:
        try:
            number = common_round(plan.output, plan.trainers)
        except VoxloadError:
            seat.meeting.set(_RESUMED, _NONE)
            raise
        seat.meeting.set(_RESUMED, str(number))
    else:
        try:
            seat.meeting.wait([_RESUMED], _TIMEOUT)
        except RuntimeError as error:
            raise UsageError("--resume", found="no word of the first trainer", remedy="see what it wrote") from error
        word = seat.meeting.get(_RESUMED).decode()
        if word == _NONE:
            raise UsageError("--resume", found="no round to go on from", remedy="see what the first trainer says")
        number = int(word)
    return source_of(plan.output, seat.trainer, plan.trainers, number)
