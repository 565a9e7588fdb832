"""Devices: what the ranks of a job compute on, the host, or a GPU that no other rank has."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence

import torch

from voxload.errors import UsageError
from voxload.launch.collectives import all_gathered

HOST, CUDA = "cpu", "cuda"
ON_HOST = torch.device(HOST)
DEVICES = (HOST, CUDA)
"""Names of kinds of devices, as ``--device`` takes them."""
_LOCAL_RANKS = (
    "LOCAL_RANK",  # torchrun
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",  # MPICH and what comes of it
    "SLURM_LOCALID",
)
"""Where launchers write a rank's number on its node; torchrun inside another one's step is torchrun."""


def check_device(name: str) -> None:
    """Raise UsageError unless `name` is one of `DEVICES`."""
    if name not in DEVICES:
        raise UsageError("--device", found=repr(name), expected=" or ".join(DEVICES))


def rank_device(name: str, environ: Mapping[str, str] | None = None) -> torch.device:
    """Return what this rank computes on, and make it torch's current device.

    Of several GPUs it is the one of the rank's number on its node. A launcher that shows each rank one GPU alone is
    taken at its word; `check_distinct` then finds two ranks on one.

    Parameters
    ----------
    name
        One of `DEVICES`.
    environ
        Where the launcher's variables are; this process's by default.

    Raises
    ------
    UsageError
        Where torch can use no GPU, or fewer than ranks on this node need.
    """
    check_there(name, ranks=1)
    if name == HOST:
        return ON_HOST
    count = torch.cuda.device_count()
    device = torch.device(CUDA, place_of(os.environ if environ is None else environ, count))
    torch.cuda.set_device(device)
    return device


def loader_device(device: torch.device) -> torch.device | None:
    """Return what a loader is told of the device that computes: on the host, batches stay where they were read."""
    return None if device.type == HOST else device


def check_there(name: str, *, ranks: int) -> None:
    """Raise UsageError unless this node has a device for each of so many ranks; does not begin to use one.

    Parameters
    ----------
    name
        One of `DEVICES`.
    ranks
        How many are to run here.
    """
    check_device(name)
    if name == HOST:
        return
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count < ranks:
        raise UsageError(
            f"--device {name}",
            found=f"{count} GPUs" if count else "no GPU that torch can use",
            expected="one for each rank" if ranks == 1 else f"one for each of {ranks} ranks",
            remedy="start fewer, or use --device cpu"
            if count
            else "use --device cpu, or a build of torch for CUDA on a machine with a GPU",
        )


def place_of(environ: Mapping[str, str], count: int) -> int:
    """Return the number, among `count` GPUs, of that which a launcher's variables leave to this rank; pure.

    Raises UsageError where the rank's number on its node is no number, or there are several GPUs and too few.
    """
    text = next((environ[name] for name in _LOCAL_RANKS if name in environ), "0")
    if not text.isdecimal():
        raise UsageError("this rank's number on its node", found=repr(text), expected="a whole number")
    place = int(text)
    if place >= count > 1:
        raise UsageError(
            "--device cuda",
            found=f"{count} GPUs for rank {place} of this node",
            expected="one for each rank",
            remedy="start no more ranks on a node than it has GPUs",
        )
    return place % count


def check_own(device: torch.device) -> None:
    """Raise UsageError on every rank when two of them compute on one GPU; all ranks call it together.

    Messages between two ranks of one GPU are refused by NCCL, after some have been sent.
    """
    if device.type != HOST:
        properties = torch.cuda.get_device_properties(device)
        check_distinct(all_gathered((socket.gethostname(), str(properties.uuid)), tuple[str, str]))


def check_distinct(gpus: Sequence[tuple[str, str]]) -> None:
    """Raise UsageError when two ranks name one GPU; pure.

    Parameters
    ----------
    gpus
        By rank: its node, and what tells its GPU from all others.
    """
    first: dict[tuple[str, str], int] = {}
    for rank, gpu in enumerate(gpus):
        other = first.setdefault(gpu, rank)
        if other != rank:
            raise UsageError(
                "--device cuda",
                found=f"one GPU of {gpu[0]} for the ranks {other} and {rank}",
                expected="one for each rank",
                remedy="start no more ranks on a node than it has GPUs, and let the launcher show each its own or all",
            )
