"""joined: torch.distributed for the ranks that a launcher started, on one node or many: torchrun, mpiexec or srun.

Ranks find each other at MASTER_ADDR and MASTER_PORT, which torchrun sets. Without them rank 0 opens a store and tells
its address by MPI, in numbers and text: nothing is pickled.
"""

from __future__ import annotations

import importlib
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import numpy as np
import torch.distributed

from voxload.errors import UsageError

dist: Any = torch.distributed
"""Stores are public there, and torch does not say so to type checkers."""
_ADDRESS_BYTES = 256
"""Room for a host's name, of 253 letters at most, and nothing more."""


@contextmanager
def joined(
    rank: int, world_size: int, *, timeout: timedelta, environ: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Initialise torch.distributed over gloo for the job's ranks, and end it afterwards; nothing for one rank.

    Raises
    ------
    UsageError
        When ranks of mpiexec or srun cannot find each other.
    """
    if world_size == 1:
        yield
        return
    known = os.environ if environ is None else environ
    store = None if "MASTER_ADDR" in known and "MASTER_PORT" in known else _store_over_mpi(rank, world_size, timeout)
    method = {"init_method": "env://"} if store is None else {"store": store}
    dist.init_process_group("gloo", rank=rank, world_size=world_size, timeout=timeout, **method)
    try:
        yield
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _store_over_mpi(rank: int, world_size: int, timeout: timedelta) -> Any:
    """Return a store of rank 0, whose address the others hear by MPI."""
    try:
        world = importlib.import_module("mpi4py.MPI").COMM_WORLD
    except ImportError as error:
        raise UsageError(
            f"{world_size} ranks without MASTER_ADDR and MASTER_PORT",
            found=f"mpi4py does not start: {error}",
            remedy="install voxload[mpi], set both variables to a host and port of rank 0, or use torchrun",
        ) from error
    if (world.rank, world.size) != (rank, world_size):
        raise UsageError(
            "launcher",
            found=f"MPI knows rank {world.rank} of {world.size}, the environment rank {rank} of {world_size}",
            remedy="install an mpi4py of the MPI that launches, or set MASTER_ADDR and MASTER_PORT",
        )
    host, opened = socket.getfqdn(), None
    address = np.zeros(_ADDRESS_BYTES, np.uint8)
    if rank == 0:
        opened = dist.TCPStore(host, 0, world_size, is_master=True, timeout=timeout, wait_for_workers=False)
        text = f"{opened.port} {host}".encode()
        address[: len(text)] = np.frombuffer(text, np.uint8)
    world.Bcast(address, root=0)
    port, host = address.tobytes().rstrip(b"\0").decode().split(" ")
    return opened or dist.TCPStore(host, int(port), world_size, is_master=False, timeout=timeout)
