"""One rank of the examples' test: each example as torchrun would run it, one after the other in one process.

    torchrun --nproc-per-node=2 -m tests.examples.rank_examples UNIVERSES NAME...

Rank 0 prints what the examples print, under a line ``# NAME`` each; every rank then prints one line of JSON with what
the frameworks made of the loaders.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import runpy
import sys
from collections.abc import Sequence

import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from tests.examples.cases import ALONE, FRAMES, FRAMEWORKS, LOADERS

PRELOADED = ["accelerate", "torch.distributed.fsdp", "voxload.loader.dataloader", "voxload.readers.registry"]
"""What workers need of the examples that they run again, and of the data: imported once, and not by each of them."""


def main(universes: str, names: Sequence[str]) -> None:
    """Run the examples, then look at what the frameworks do with the loaders."""
    multiprocessing.set_forkserver_preload(PRELOADED)
    rank = int(os.environ["RANK"])
    master = _Master(rank)
    for name, loaders in LOADERS.items():
        if name not in names or (name in ALONE and rank > 0):
            continue
        master.renew(name)
        if rank == 0:
            _write(f"# {name}")
        sys.argv = [name, universes, "--loader", *loaders]
        runpy.run_path(str(FRAMES / f"{name}.py"), run_name="__main__")
        if dist.is_initialized():
            dist.destroy_process_group()
    found = {}
    for name in FRAMEWORKS:
        if name not in names or (name in ALONE and rank > 0):
            continue
        master.renew(name)
        found[name] = importlib.import_module(f"tests.examples.rank_{name}").look(universes)
        if dist.is_initialized():
            dist.destroy_process_group()
    # One write a rank: torchrun joins the ranks' output, and two writes would interleave.
    _write(json.dumps({"rank": rank, **found}))


class _Master:
    """Gives each process group a store of its own: torchrun's still holds the keys of the group before."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._torchrun = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
        self._stores: list[TCPStore] = []
        os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"

    def renew(self, name: str) -> None:
        """Let the next process group meet at a new port."""
        if self._rank == 0:  # kept open, and shared by the group that is made at its port
            store = TCPStore(os.environ["MASTER_ADDR"], 0, is_master=True, wait_for_workers=False, multi_tenant=True)
            self._stores.append(store)
            self._torchrun.set(name, str(store.port))
        os.environ["MASTER_PORT"] = self._torchrun.get(name).decode()


def _write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
