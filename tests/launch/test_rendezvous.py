"""Process groups: what is left of them when they were ended."""

from __future__ import annotations

import json
import socket
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.ranks import printed_by_ranks
from voxload.errors import UsageError
from voxload.launch.rendezvous import process_group

RANKS = 2
RANK = """
import gc, json, os
from datetime import timedelta
from pathlib import Path
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from voxload.launch import rendezvous
from voxload.launch.rendezvous import process_group

def threads():
    return sum("gloo_runloop" in place.read_text() for place in Path("/proc/self/task").glob("*/comm"))

found = [threads()]
with process_group(int(os.environ["RANK"]), 2, timeout=timedelta(minutes=10)):
    network = DistributedDataParallel(nn.Linear(1, 1))
    network(torch.ones(1, 1)).sum().backward()
    found.append(threads())
found.append(threads())
del network
gc.collect()
found.append(threads())
rendezvous._ended.clear()  # as the next group does, and the process's end
found.append(threads())
print(json.dumps(found))
"""

IN_A_CYCLE = """
import json, os, weakref
from datetime import timedelta
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from voxload.launch.rendezvous import process_group

gone = []
with process_group(int(os.environ["RANK"]), 2, timeout=timedelta(minutes=10)):
    network = DistributedDataParallel(nn.Linear(1, 1))
    network(torch.ones(1, 1)).sum().backward()
    network.__dict__["itself"] = network
    weakref.finalize(network, lambda: gone.append(torch.distributed.is_initialized()))
    del network
print(json.dumps(gone))
"""


def test_a_group_outlives_the_networks_that_hold_it(tmp_path: Path) -> None:
    """Whoever drops the last reference of a group waits for its threads; only the next group does so without a lock."""
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    for line in printed_by_ranks(script, ranks=RANKS).splitlines():
        before, within, ended, without_network, after = json.loads(line)
        assert before == after == 0
        assert within == ended == without_network > 0


def test_networks_that_only_a_cycle_keeps_go_before_their_group(tmp_path: Path) -> None:
    """What holds a group until the process's end has its threads ask for an interpreter that is gone: an abort."""
    script = tmp_path / "rank.py"
    script.write_text(IN_A_CYCLE)
    assert [json.loads(line) for line in printed_by_ranks(script, ranks=RANKS).splitlines()] == [[True]] * RANKS


@pytest.mark.parametrize("rank", [0, 1])
def test_who_is_alone_is_told_where_it_waited(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line, of the address and the time: rank 0 whom nobody comes to, and a rank that finds no rank 0."""
    with socket.socket() as bound:  # not listening, so that nobody answers there
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        if rank == 0:
            bound.close()
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", str(port))
        with (
            pytest.raises(
                UsageError, match=rf"rank {rank} of 2: found no meeting at 127.0.0.1:{port}: .* within 1 s; "
            ),
            process_group(rank, 2, timeout=timedelta(seconds=1)),
        ):
            raise AssertionError("there is no other rank")
