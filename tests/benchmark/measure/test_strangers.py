"""Strangers at the stores in which ranks meet: what they write there is never run, and is no value of a rank's."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch.distributed

from tests.support import processes
from voxload.launch.rendezvous import LOOPBACK, store_at

dist: Any = torch.distributed
TIMEOUT = timedelta(seconds=processes.LIMIT)

RANK = """
import os, sys
from voxload.benchmark.measure.rank_group import rank_group
from voxload.errors import InternalError
with rank_group() as shared:
    print("met", flush=True)
    sys.stdin.readline()
    try:
        print("heard", shared.gather({"rank": shared.rank}, dict[str, int]), flush=True)
    except InternalError as error:
        print("refused", error, flush=True)
    os._exit(0)  # the other rank never was one
"""


class _Evil:
    """An object whose pickle makes a folder."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        """Say what to call where it is unpickled."""
        return os.mkdir, (str(self._mark),)


LONG = ("wrong", "pickle in a piece", "none", "deep", "many pieces")


def _hostile(mark: Path) -> dict[str, bytes]:
    return {
        "pickle": pickle.dumps(_Evil(mark)),
        "pickle in a piece": b"1 " + pickle.dumps(_Evil(mark)),
        "wrong": b'1 {"rank": "0"}',
        "none": b"1 \xff\xfe",
        "deep": b"1 " + b"[" * 10**6,
        "many pieces": b"1000000 {}",
    }


@pytest.mark.parametrize("what", ["pickle", *(pytest.param(name, marks=pytest.mark.long) for name in LONG)])
def test_a_stranger_in_the_meeting(tmp_path: Path, what: str) -> None:
    """Rank 0 hears what a stranger wrote in rank 1's name, by torch's own client: an error names the rank."""
    mark = tmp_path / "ran"
    store = store_at(LOOPBACK, 2, timeout=TIMEOUT)
    environ = {
        **os.environ,
        "RANK": "0",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": LOOPBACK,
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    words: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environ}
    with processes.started([sys.executable, "-c", RANK], **words) as rank:
        assert rank.stdout is not None
        assert rank.stdout.readline() == "met\n"
        # 100 MB of text: torch's store itself takes no more than 8 MiB, and hangs up.
        flood = dist.TCPStore(LOOPBACK, store.port, is_master=False, timeout=TIMEOUT)
        with suppress(RuntimeError):
            flood.set("voxload.benchmark/1/1", "0" * 10**8)
        stranger = dist.TCPStore(LOOPBACK, store.port, is_master=False, timeout=TIMEOUT)
        # torchrun's agents put their ranks' keys behind a prefix.
        for prefix in ("", "/worker/attempt_0/", "default_pg/"):
            stranger.set(f"{prefix}voxload.benchmark/1/1", _hostile(mark)[what])
        said, _ = rank.communicate("go\n", timeout=processes.LIMIT)
    assert said.startswith("refused what rank 1 said: found ")
    assert not mark.exists()
