"""Meter: what a piece of work costs the process that does it. Needs the standard library only."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def moved(process: str = "self") -> dict[str, int]:
    """Return what a process has read and written so far. Source: proc(5), /proc/pid/io."""
    lines = Path(f"/proc/{process}/io").read_text().splitlines()
    return {name: int(number) for name, number in (line.split(": ") for line in lines)}


@contextmanager
def metered() -> Iterator[None]:
    """Print a line of JSON about the block: seconds, of which on cores, bytes moved, and the process's peak memory."""
    before, spent, started = moved(), time.process_time(), time.perf_counter()
    yield
    seconds, spent, after = time.perf_counter() - started, time.process_time() - spent, moved()
    # VmHWM and not getrusage: the latter's peak begins with that of the process that started this one.
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    if found is None:
        raise RuntimeError("no VmHWM in /proc/self/status: a Linux kernel is needed")
    told = {name: after[name] - before[name] for name in after}
    print(json.dumps({"seconds": seconds, "cpu": spent, "peak": 1024 * int(found[1]), "moved": told}))
