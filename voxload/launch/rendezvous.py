"""Rendezvous: how the ranks of a job meet, at a store of one address, and form a process group.

Stores: torch's key-value stores that voxload itself opens, each at one address and never at all of them. torch's own
TCPStore listens at every address of its node and asks nobody for a secret. It takes a socket that was bound before,
and so it is given one.

Process groups: torch.distributed for the ranks that a launcher started, on one node or many: torchrun, mpiexec or
srun. Ranks find each other at MASTER_ADDR and MASTER_PORT, which torchrun sets. Without them rank 0 opens a store and
tells its address by MPI, in numbers and text: nothing is pickled.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import ipaddress
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import numpy as np
import torch.distributed

from voxload.errors import InternalError, UsageError
from voxload.launch.devices import HOST

dist: Any = torch.distributed
"""Stores are public there, and torch does not say so to type checkers."""

LOOPBACK = "127.0.0.1"
"""Where nobody but this node can ask."""
_ADDRESS_BYTES = 64
"""Room for an address in letters and a port, and nothing more."""


def store_at(host: str, world_size: int, *, timeout: timedelta) -> Any:
    """Return a store that this process keeps at one address, an IP address of this node's, and at any free port.

    Raises
    ------
    UsageError
        When it is no address of this node's.
    """
    family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.bind((host, 0))
        listener.listen(socket.SOMAXCONN)
    except OSError as error:
        listener.close()
        raise UsageError("store of the ranks", found=f"{host}: {error.strerror}", expected="an address here") from error
    port = listener.getsockname()[1]
    words = {"is_master": True, "timeout": timeout, "wait_for_workers": False}
    words["master_listen_fd"] = listener.detach()  # the store's from now on
    return dist.TCPStore(host, port, world_size, **words)


def store_over_mpi(rank: int, world_size: int, *, timeout: timedelta) -> Any:
    """Return a store of rank 0, whose address the others hear by MPI, in letters: nothing is pickled.

    It listens at loopback where all ranks are on one node, else at the address that rank 0's host name stands for.

    Raises
    ------
    UsageError
        When there is no MPI, the launcher is of another one, or rank 0's host name stands for loopback alone.
    """
    world = _world(rank, world_size)
    here = world.Split_type(importlib.import_module("mpi4py.MPI").COMM_TYPE_SHARED)
    is_one_node = here.size == world.size
    here.Free()
    opened, failure = None, None
    address = np.zeros(_ADDRESS_BYTES, np.uint8)
    if rank == 0:
        try:
            host = LOOPBACK if is_one_node else _own_address()
            opened = store_at(host, world_size, timeout=timeout)
            text = f"{opened.port} {host}".encode()
            address[: len(text)] = np.frombuffer(text, np.uint8)
        except UsageError as error:
            failure = error
    world.Bcast(address, root=0)
    if failure is not None:
        raise failure
    port, _, host = address.tobytes().rstrip(b"\0").decode("ascii", "replace").partition(" ")
    if not port.isdecimal():
        raise InternalError("rank 0", found="no address of a store", remedy="see what rank 0 has written")
    return opened or dist.TCPStore(host, int(port), world_size, is_master=False, timeout=timeout)


def _world(rank: int, world_size: int) -> Any:
    """Return MPI's communicator of all ranks."""
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
    return world


def _own_address() -> str:
    """Return an address of this node that others may reach; raises UsageError where its name tells of none."""
    name = socket.getfqdn()
    try:
        found = [str(each[4][0]) for each in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    except OSError:
        found = []
    known = [each for each in found if not ipaddress.ip_address(each.partition("%")[0]).is_loopback]
    if not known:
        raise UsageError(
            f"host name {name}",
            found=f"{', '.join(dict.fromkeys(found)) or 'no address'}, which other nodes do not reach",
            expected="an address of the network between the nodes",
            remedy="set MASTER_ADDR and MASTER_PORT to an address and a free port of rank 0's node",
        )
    return known[0]


_ON_HOSTS = "gloo"
_ON_GPUS = "cpu:gloo,cuda:nccl"
"""Numbers of the host travel by gloo there, too: they are asked for by the host."""


_ended: list[Any] = []
"""The process group that `process_group` ended last.

The reducer of a DistributedDataParallel holds its group, too. If it goes last, gloo's threads are waited for by one
that has the interpreter's lock, for which they may wait themselves: to free the tensors of the last collective. A job
that had trained hung so, once in thousands of runs (PyTorch's issue 56297). The group's own object lets go of the lock.
"""
atexit.register(_ended.clear)


@contextmanager
def process_group(
    rank: int,
    world_size: int,
    *,
    timeout: timedelta,
    kind: str = HOST,
    environ: Mapping[str, str] | None = None,
    store: Any = None,
) -> Iterator[None]:
    """Initialise torch.distributed for the job's ranks, and end it afterwards; nothing for one rank.

    Threads and connections of a group that was ended go with the next one, or with the process.

    What lies on the host travels by gloo and, where ranks compute on a `kind` of device that is no host, what lies
    there by NCCL.

    They meet at `store` where one is given, else where the launcher says.

    Raises
    ------
    UsageError
        When ranks of mpiexec or srun cannot find each other, or one does not meet the others in time.
    """
    if world_size == 1:
        yield
        return
    known = os.environ if environ is None else environ
    if store is None and not ("MASTER_ADDR" in known and "MASTER_PORT" in known):
        store = store_over_mpi(rank, world_size, timeout=timeout)
    method = {"init_method": "env://"} if store is None else {"store": store}
    backend = _ON_HOSTS if kind == HOST else _ON_GPUS
    _ended.clear()
    try:
        dist.init_process_group(backend, rank=rank, world_size=world_size, timeout=timeout, **method)
    except (dist.DistStoreError, dist.DistNetworkError) as error:
        where = f"{known['MASTER_ADDR']}:{known['MASTER_PORT']}" if store is None else "the store of rank 0"
        raise UsageError(
            f"rank {rank} of {world_size}",
            found=f"no meeting at {where}: {str(error).partition(chr(10))[0].rstrip('.')}",
            expected=f"all ranks there within {timeout.total_seconds():g} s",
            remedy="look whether all were started, rank 0 listens at that address, and no firewall is in between",
        ) from error
    try:
        yield
    finally:
        gc.collect()  # of a reducer, that only a cycle of references keeps: it would hold the group until the very end
        if dist.is_initialized():
            _ended.append(dist.group.WORLD)
            dist.destroy_process_group()
