"""Two users of one machine, what scripts that run as one of them begin and end with, and what they say."""

from __future__ import annotations

from typing import Any

from tests.support import processes

A, B = 61001, 61002
"""Users that need no account."""

BECOME = f"""
import os, signal, socket, stat, time, warnings
from contextlib import closing
from pathlib import Path
import numpy as np
import tier as laws
from voxload.cache.memory.attached import AttachedMemory
from voxload.cache.disk.blockfile import BlockFiles, path_of
from voxload.cache.disk.tier import DiskTier
from voxload.cache.memory.tier import MemoryTier
from voxload.errors import UsageError, VoxloadError
signal.alarm({int(processes.LIMIT)})
user = int(sys.argv[1])
os.setgroups([])
os.setresgid(user, user, user)
os.setresuid(user, user, user)
os.umask(int(sys.argv[2], 8))
shared = Path(sys.argv[3])
warned = []
warnings.simplefilter("always")
warnings.showwarning = lambda message, *rest: warned.append(str(message))
CAPACITY = 2**18
def fetched(tier, name):
    "Return what a tier gives: true, forged, or none."
    found = laws.get(tier, laws.key_of(name), laws.block_of(0))
    if found is None:
        return "none"
    return "true" if laws.same_bits(found, laws.block_of(0)) else "forged"
def say(*words):
    print(*words, flush=True)
"""

END = """
os._exit(0)  # the interpreter's own end takes seconds here
"""


def done(child: Any) -> list[str]:
    """Return all that a process says until it ends well."""
    with child as process:
        said = list(iter(process.hear, ""))
        assert process.wait() == 0, said
    return said
