"""Links between nodes, measured by ranks that a launcher started on several: all of a node send at once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from statistics import median

import numpy as np
import torch
import torch.distributed as dist

from voxload.errors import UsageError
from voxload.files.atomic import replacing
from voxload.grid import launched_as
from voxload.launch.collectives import all_gathered
from voxload.launch.devices import check_own, rank_device
from voxload.launch.rendezvous import process_group
from voxload.plan.calibration.measuring import clock_of
from voxload.plan.costs.speeds import Link
from voxload.plan.costs.surface import not_negative

_TIMEOUT = timedelta(minutes=10)
_SIZES = tuple(4**power * 4 for power in range(12))
"""Bytes of messages: 4 to 16 MiB."""
_REPEATS = 7
_TABLE = re.compile(r"\n*^\[links\.between\]\n(?:(?!\[).*\n?)*", re.MULTILINE)
"""The table of a machine's file, up to the next one."""


def measure_between(ranks_per_node: int, device: str) -> Link | None:
    """Return how fast nodes talk, on the first rank of the job; None on all others.

    Ranks of equal place on two nodes send to each other, all pairs at once. Where the number of nodes is odd, the last
    one only listens.

    Parameters
    ----------
    ranks_per_node
        Of the machine's file; ranks are numbered node by node.
    device
        What each rank computes on.

    Raises
    ------
    UsageError
        When the job's ranks do not fill two nodes.
    """
    rank, world_size = launched_as(os.environ)
    if world_size % ranks_per_node or world_size < 2 * ranks_per_node:
        raise UsageError(
            "calibration under a launcher",
            found=f"{world_size} ranks, where a node of the machine's file has {ranks_per_node}",
            expected="those of two nodes or more, all of each",
            remedy="start as many on each node, or calibrate one node without a launcher",
        )
    own = rank_device(device)
    with process_group(rank, world_size, timeout=_TIMEOUT, kind=own.type):
        check_own(own)
        found = all_gathered(list(_points(rank, world_size, ranks_per_node, own)), list[tuple[int, float]])
    return fitted_link([each for one in found for each in one], ranks_per_node) if rank == 0 else None


def _points(rank: int, world_size: int, near: int, device: torch.device) -> Iterator[tuple[int, float]]:
    """Yield bytes and seconds of messages to the rank of the same place on the node beside this one, and from it."""
    node, clock = rank // near, clock_of(device)
    other = (node ^ 1) * near + rank % near
    for nbytes in _SIZES:
        sent, received = (torch.zeros(nbytes // 4, device=device) for _ in range(2))
        taken = []
        for _ in range(_REPEATS):
            dist.barrier()
            begin = clock()
            if other < world_size:
                works = [dist.P2POp(dist.isend, sent, other), dist.P2POp(dist.irecv, received, other)]
                for each in dist.batch_isend_irecv(works):
                    each.wait()
            taken.append(clock() - begin)
        if other < world_size:
            yield nbytes, median(taken)


def fitted_link(points: list[tuple[int, float]], ranks_per_node: int) -> Link:
    """Return the link of a node whose ranks all sent at once, each so many bytes in so many seconds."""
    rows = np.array([(1.0, nbytes * ranks_per_node) for nbytes, _ in points])
    latency, seconds_per_byte = map(float, not_negative(rows, np.array([seconds for _, seconds in points])))
    return Link(latency, seconds_per_byte)


def write_between(path: Path, link: Link) -> None:
    """Put the link between nodes into a machine's file, in the place of the one that is there; whole or not at all."""
    text = _TABLE.sub("\n", path.read_text(encoding="utf-8")).rstrip("\n")
    speed = int(1 / max(link.seconds_per_byte, 1e-15))
    table = f"\n\n[links.between]\nlatency = {link.latency:.6g}\nbytes_per_second = {speed}\n"
    with replacing(path) as temporary:
        temporary.write_text(text + table, encoding="utf-8")
