"""Repacking: SOURCE RESULT CHUNK; h5repack, from a process so small that its own memory is no matter.

The peak is ru_maxrss, which begins with that of this process, 10 MiB: the memory of a process that has ended is not
listed in /proc any more. What it moved still is, until it is waited for.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from bench.converting.meter import moved
from bench.converting.turns.flushing import flush


def main() -> None:
    """Write chunks (d, h, w, C), shuffled and deflated at level 1 with a checksum, as voxload's into HDF5."""
    source, result, chunk = sys.argv[1:]
    layout = "x".join([chunk] * 3 + ["4"])
    filters = [word for name in ("SHUF", "GZIP=1", "FLET") for word in ("-f", f"full:{name}")]
    path = next(Path(source).iterdir())
    program = shutil.which("h5repack") or "h5repack"
    started = time.perf_counter()
    child = subprocess.Popen([program, "-l", f"full:CHUNK={layout}", *filters, str(path), result])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    told = moved(str(child.pid))
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, child.args)
    flush(Path(result))
    seconds = time.perf_counter() - started
    cpu, peak = usage.ru_utime + usage.ru_stime, 1024 * usage.ru_maxrss
    print(json.dumps({"seconds": seconds, "cpu": cpu, "peak": peak, "moved": told}))


if __name__ == "__main__":
    main()
