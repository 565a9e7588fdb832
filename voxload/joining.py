"""joined: torch.distributed for the ranks that a launcher started, on one node or many: torchrun, mpiexec or srun.

Ranks find each other at MASTER_ADDR and MASTER_PORT, which torchrun sets. Without them rank 0 opens a store and tells
its address by MPI, in numbers and text: nothing is pickled.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch.distributed

from voxload.devices import HOST
from voxload.stores import store_over_mpi

dist: Any = torch.distributed
"""Stores are public there, and torch does not say so to type checkers."""
_ON_HOSTS = "gloo"
_ON_GPUS = "cpu:gloo,cuda:nccl"
"""Numbers of the host travel by gloo there, too: they are asked for by the host."""


@contextmanager
def joined(
    rank: int, world_size: int, *, timeout: timedelta, kind: str = HOST, environ: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Initialise torch.distributed for the job's ranks, and end it afterwards; nothing for one rank.

    What lies on the host travels by gloo and, where ranks compute on a `kind` of device that is no host, what lies
    there by NCCL.

    Raises
    ------
    UsageError
        When ranks of mpiexec or srun cannot find each other.
    """
    if world_size == 1:
        yield
        return
    known = os.environ if environ is None else environ
    store = (
        None if "MASTER_ADDR" in known and "MASTER_PORT" in known else store_over_mpi(rank, world_size, timeout=timeout)
    )
    method = {"init_method": "env://"} if store is None else {"store": store}
    backend = _ON_HOSTS if kind == HOST else _ON_GPUS
    dist.init_process_group(backend, rank=rank, world_size=world_size, timeout=timeout, **method)
    try:
        yield
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
