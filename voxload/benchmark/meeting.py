"""Meeting: what the ranks of a benchmark run tell each other, whatever launched them.

Ranks meet at a store of torch's (TCPStore), beside any loader's traffic, and not through torch.distributed itself: of a
sample group only some ranks may run, and then torch.distributed must not pretend that these are the whole job.
"""

from __future__ import annotations

import importlib
import os
import pickle
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed

from voxload.errors import InternalError, UsageError
from voxload.grid import launched_as

T = TypeVar("T")

dist: Any = torch.distributed
"""Stores are public there, and torch does not say so to type checkers."""

PATIENCE = timedelta(minutes=30)
"""How long a rank waits for the others: one may read an epoch alone, from a slow storage."""
_TORCHRUN = ("MASTER_ADDR", "MASTER_PORT")


class Meeting:
    """Ranks that exchange plain values; every rank calls each method as often as the others. Used by one thread.

    Parameters
    ----------
    store
        Where they meet, one of torch's; None for a rank that is alone.
    rank, size
        This rank's number, and how many there are.
    """

    def __init__(self, store: Any, *, rank: int, size: int) -> None:
        self.store = store
        self.rank, self.size = rank, size
        self._turn = 0

    def gather(self, mine: T) -> list[T]:
        """Return what every rank gave, by rank.

        Raises InternalError when a rank does not come within `PATIENCE`.
        """
        if self.store is None:
            return [mine]
        self._turn += 1
        keys = [f"{self._turn}/{rank}" for rank in range(self.size)]
        try:
            self.store.set(keys[self.rank], pickle.dumps(mine))
            found = [mine if rank == self.rank else pickle.loads(self.store.get(key)) for rank, key in enumerate(keys)]  # noqa: S301 - written by this job's own ranks
            self._forget()
        except RuntimeError as error:
            raise InternalError(
                f"rank {self.rank} of {self.size}",
                found=f"a rank that does not answer: {str(error).splitlines()[0]}",
                remedy="see what the rank that ended has written",
            ) from error
        return found

    def first(self, mine: T) -> T:
        """Return what rank 0 gave."""
        return self.gather(mine if self.rank == 0 else None)[0]  # type: ignore[return-value] # rank 0 gave a T

    def wait(self) -> None:
        """Wait until all ranks are here."""
        self.gather(None)

    def _forget(self) -> None:
        """Remove what this rank said a turn ago: whoever said something in this turn has read it."""
        if self._turn > 1 and self.store is not None:
            self.store.delete_key(f"{self._turn - 1}/{self.rank}")


@contextmanager
def meeting(environ: Mapping[str, str] | None = None) -> Iterator[Meeting]:
    """Open the meeting of the ranks that a launcher started: torchrun, mpiexec or srun; of one process without.

    Raises
    ------
    UsageError
        When the launcher's variables are incomplete, or ranks of mpiexec or srun cannot find each other.
    """
    known = os.environ if environ is None else environ
    rank, size = launched_as(known)
    if size == 1:
        yield Meeting(None, rank=0, size=1)
        return
    store = _at_master(rank, size) if all(name in known for name in _TORCHRUN) else _over_mpi(rank, size)
    joined = Meeting(dist.PrefixStore("voxload.benchmark", store), rank=rank, size=size)
    yield joined
    joined.wait()  # who made the store must not leave before the others have read it


@contextmanager
def as_torch_job(shared: Meeting, *, is_whole: bool) -> Iterator[None]:
    """Let torch.distributed know the job, as training would, where all its ranks run: loaders compare and share by it.

    Nothing is done for a rank that is alone, or when only some ranks of the job run.
    """
    if shared.store is None or not is_whole:
        yield
        return
    store = dist.PrefixStore("voxload.benchmark.world", shared.store)
    dist.init_process_group("gloo", store=store, rank=shared.rank, world_size=shared.size, timeout=PATIENCE)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _at_master(rank: int, size: int) -> Any:
    """Return the store at MASTER_ADDR that torchrun keeps, or that rank 0 opens."""
    store, found_rank, found_size = next(dist.rendezvous("env://", rank, size, timeout=PATIENCE))
    if (found_rank, found_size) != (rank, size):
        raise InternalError("rendezvous", found=f"rank {found_rank} of {found_size}", expected=f"{rank} of {size}")
    store.set_timeout(PATIENCE)
    return store


def _over_mpi(rank: int, size: int) -> Any:
    """Return a store of rank 0, whose address the others hear by MPI."""
    try:
        world = importlib.import_module("mpi4py.MPI").COMM_WORLD
    except ImportError as error:
        raise UsageError(
            f"{size} ranks without MASTER_ADDR and MASTER_PORT",
            found=f"mpi4py does not start: {error}",
            remedy="install voxload[mpi], set both variables, or use torchrun",
        ) from error
    if (world.rank, world.size) != (rank, size):
        raise UsageError(
            "launcher",
            found=f"MPI knows rank {world.rank} of {world.size}, the environment rank {rank} of {size}",
            remedy="install an mpi4py of the MPI that launches, or set MASTER_ADDR and MASTER_PORT",
        )
    host, opened = socket.getfqdn(), None
    if rank == 0:
        opened = dist.TCPStore(host, 0, size, is_master=True, timeout=PATIENCE, wait_for_workers=False)
    address = world.bcast((host, opened.port) if opened is not None else None)
    return opened or dist.TCPStore(*address, size, is_master=False, timeout=PATIENCE)
