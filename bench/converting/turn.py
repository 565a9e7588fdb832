"""Turn: one contender's work in a process of its own, and what it cost."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.reading import pagecache

_ROOT = Path(__file__).resolve().parents[2]
_LIMIT = 3600.0
"""Seconds that a turn may take before it is given up."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn cost."""

    seconds: float
    """From the call to its return, the result flushed."""
    cpu: float
    """Seconds on cores, of all threads."""
    peak: int
    """Most bytes of memory that the process had at once."""
    read: int
    """Bytes that it asked of the system, cached or not."""
    written: int
    """Bytes that it handed to the system."""
    device_read: int
    """Bytes that came from the device."""
    device_written: int
    """Bytes that were to go to the device."""
    stored: int
    """Bytes of the files that it left."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A way to do the work."""

    name: str
    script: str
    """Module among the turns; called with the source, the result, and the words."""
    words: tuple[str, ...] = ()
    python: str = sys.executable
    """What runs it."""

    def run(self, source: Path, result: Path, *, is_cold: bool) -> Turn:
        """Do it once and leave the result; a process that fails raises CalledProcessError."""
        files = [path for path in source.iterdir() if path.is_file()] if source.is_dir() else [source]
        (pagecache.drop if is_cold else pagecache.warm)(files)
        module = ["-m", f"bench.converting.turns.{self.script}"]
        command = [self.python, *module, str(source), str(result), *self.words]
        environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
        child = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, text=True, timeout=_LIMIT, env=environment, cwd=result.parent
        )
        told = json.loads(child.stdout.splitlines()[-1])
        moved = told["moved"]
        return Turn(
            told["seconds"],
            told["cpu"],
            told["peak"],
            moved["rchar"],
            moved["wchar"],
            moved["read_bytes"],
            moved["write_bytes"],
            sum(path.stat().st_size for path in _files(result)),
        )


def _files(path: Path) -> list[Path]:
    return [one for one in path.rglob("*") if one.is_file()] if path.is_dir() else [path]


def remove(path: Path) -> None:
    """Remove a result."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def rounds(contenders: Sequence[Contender], source: Path, times: int, *, is_cold: bool) -> dict[str, list[Turn]]:
    """Let contenders take turns, in another order each round; the first one's compiled code is made before."""
    scratch = source.parent / "result"
    found: dict[str, list[Turn]] = {contender.name: [] for contender in contenders}
    for number in range(times):
        first = number % len(contenders)
        for contender in (*contenders[first:], *contenders[:first]):
            remove(scratch)
            found[contender.name].append(contender.run(source, scratch, is_cold=is_cold))
    remove(scratch)
    return found
