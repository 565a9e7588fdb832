"""torchrun for the processes of one machine, which meet at loopback: ``python -m voxload.launch.torchrun``.

torchrun's own rendezvous listens at every address of the machine, asks for no secret and unpickles what it finds in its
store (torch 2.6 to 2.13, ``--standalone`` too): whoever reaches its port runs code in the job. This one keeps a store
at loopback, from which nothing is unpickled. All other words of torchrun are torchrun's.

``--end-with-input``, as the first word, ends it and its ranks when its standard input does: for who starts it and
holds the other end of a pipe.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from datetime import timedelta
from typing import Any

import torch.distributed
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)
from torch.distributed.run import main as torchrun

from voxload.launch.rendezvous import LOOPBACK, store_at

dist: Any = torch.distributed
"""Stores are public there, and torch does not say so to type checkers."""
BACKEND = "voxload-loopback"
"""Its name among torch's rendezvous."""
END_WITH_INPUT = "--end-with-input"
_TIMEOUT = timedelta(minutes=30)


class _Loopback(RendezvousHandler):
    """One machine's rendezvous: there is nobody to wait for."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._store = store_at(LOOPBACK, 1, timeout=_TIMEOUT)
        self._is_closed = False

    def get_backend(self) -> str:
        return BACKEND

    @property
    def use_agent_store(self) -> bool:
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        prefixed = dist.PrefixStore(self._run_id, self._store)
        return RendezvousInfo(prefixed, 0, 1, RendezvousStoreInfo(LOOPBACK, self._store.port))

    def is_closed(self) -> bool:
        return self._is_closed

    def set_closed(self) -> None:
        self._is_closed = True

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return self._run_id

    def shutdown(self) -> bool:
        self._is_closed = True
        return True


def _open(parameters: RendezvousParameters) -> RendezvousHandler:
    return _Loopback(parameters.run_id)


def _end_with_input() -> None:
    """End this process as SIGTERM does, which torchrun passes on to ranks, once standard input has ended."""
    held = os.dup(sys.stdin.fileno())
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - a descriptor is wanted; ranks are not to share the pipe
        os.dup2(nothing.fileno(), sys.stdin.fileno())

    def wait() -> None:
        while os.read(held, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="voxload-end", daemon=True).start()


if __name__ == "__main__":
    words = sys.argv[1:]
    if words[:1] == [END_WITH_INPUT]:
        del words[0]
        _end_with_input()
    rendezvous_handler_registry.register(BACKEND, _open)
    # Without an endpoint torchrun warns of an address that nobody gave; this rendezvous chooses its own.
    torchrun([f"--rdzv-backend={BACKEND}", f"--rdzv-endpoint={LOOPBACK}:0", *words])
