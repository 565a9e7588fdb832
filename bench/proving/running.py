"""Running: parts as processes, each within its limit; what they said becomes rows of the table.

A process is ``python -m bench.proving.running PART DEVICE OUTPUT LIMIT [FAULT]``.
"""

from __future__ import annotations

import faulthandler
import importlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from bench.harness import children
from bench.harness.script import ROOT
from bench.proving import told
from bench.proving.claim import Row, Verdict
from bench.proving.parts import Part, chosen
from tests.support import processes

LOG, _TOLD = "{}.log", "told-{}.jsonl"
"""Names of the files in the output folder that hold what a part printed, and what it said."""
_PLACE = re.compile(r'File "(.+?)", line (\d+)')
_SHORTEST = 5.0
"""Seconds below which no part is begun."""
_EARLIER = 2.0
"""Seconds before its limit at which a part that hangs says where."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a part ended."""

    part: Part
    rows: tuple[Row, ...]
    seconds: float = 0.0
    details: dict[str, Any] = field(default_factory=dict)


def run_part(part: Part, device: str, output: Path, *, limit: float, fault: str = "") -> Ended:
    """Run a part to its end, or to its limit; nothing that it started is left then.

    Parameters
    ----------
    part
        Which.
    device
        ``cuda``, or ``cpu``.
    output
        Folder for its log, its pictures and what it says.
    limit
        Seconds that are left for it.
    fault
        What is to go wrong in it.
    """
    if limit < _SHORTEST:
        return Ended(part, _all(part, Verdict.SKIPPED, "no time was left"))
    said, log = output / _TOLD.format(part.name), output / LOG.format(part.name)
    said.unlink(missing_ok=True)
    command = [sys.executable, "-m", "bench.proving.running", part.name, device, str(output), f"{limit:g}"]
    start = monotonic()
    # A part that is killed removes no temporary file of its own.
    with tempfile.TemporaryDirectory(prefix="voxload-gpu-") as folder, log.open("wb") as written:
        words: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": written, "stderr": subprocess.STDOUT}
        environ = children.environ() | {"PYTHONFAULTHANDLER": "1", "TMPDIR": folder}
        with processes.started([*command, *filter(None, [fault])], cwd=ROOT, env=environ, **words) as process:
            try:
                status = process.wait(timeout=limit)
                ending = "" if not status else _ending(status, log)
            except subprocess.TimeoutExpired:
                ending = f"was not done after {limit:.0f} s{place_of(log)}"
    found = told.read(said)
    said.unlink(missing_ok=True)
    return Ended(part, rows_of(part, found, ending), monotonic() - start, found.details)


def skipped(part: Part, why: str) -> Ended:
    """Return the end of a part that was not begun."""
    return Ended(part, _all(part, Verdict.SKIPPED, why))


def rows_of(part: Part, found: told.Told, ending: str) -> tuple[Row, ...]:
    """Return the rows of a part by what it said and how it ended, empty for as it should; pure.

    What a part says of a claim that it does not have is a fault of its own, and a row that failed.
    """
    rows = []
    for claim in part.claims:
        if claim.name in found.figures:
            figures = found.figures[claim.name]
            rows.append(Row(part.name, claim, claim.judge(figures), figures))
        elif claim.name in found.lacks:
            rows.append(Row(part.name, claim, Verdict.SKIPPED, why=found.lacks[claim.name]))
        else:
            rows.append(Row(part.name, claim, Verdict.FAILED, why=ending or "nothing was said of it"))
    strange = {*found.figures, *found.lacks} - {claim.name for claim in part.claims}
    if strange:
        raise ValueError(f"{part.name}: says {sorted(strange)}, claims {[claim.name for claim in part.claims]}")
    if ending and all(row.verdict is not Verdict.FAILED for row in rows):  # it died behind its last word
        last = rows[-1]
        rows[-1] = Row(part.name, last.claim, Verdict.FAILED, last.figures, ending)
    return tuple(rows)


def _all(part: Part, verdict: Verdict, why: str) -> tuple[Row, ...]:
    return tuple(Row(part.name, claim, verdict, why=why) for claim in part.claims)


def _ending(status: int, log: Path) -> str:
    """Return how a process ended that should not have ended so: by its last line, and the place in our sources."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    last = lines[-1].strip() if lines and status > 0 else ""
    how = f"killed by signal {-status}" if status < 0 else last or f"status {status}"
    return f"{how}{place_of(log)}"


def place_of(log: Path) -> str:
    """Return the innermost place in our own sources that a log's last traceback names."""
    text = log.read_text(errors="replace")
    # Python's own tracebacks end with the innermost call, those of its fault handler begin with it.
    of_faults = "most recent call first" in text
    if of_faults:
        text = text.rpartition("most recent call first")[2]
    ours = [(path, line) for path, line in _PLACE.findall(text) if path.startswith(str(ROOT)) and "/.venv/" not in path]
    if not ours:
        return ""
    path, line = ours[0 if of_faults else -1]
    return f" at {Path(path).relative_to(ROOT)}:{line}"


def prover(part: Part) -> Callable[[told.Setting, told.Teller], None]:
    """Return what proves a part."""
    module = importlib.import_module(f"bench.proving.{part.home or part.name}")
    found: Callable[[told.Setting, told.Teller], None] = getattr(module, f"prove_{part.name}")
    return found


def main(name: str, device: str, output: str, limit: str, fault: str = "") -> None:
    """Run a part in this process; what it raises ends it."""
    print(f"{name} on {device}, for at most {limit} s", flush=True)
    faulthandler.enable()
    faulthandler.dump_traceback_later(max(0.1, float(limit) - _EARLIER))
    setting = told.Setting(device, Path(output), is_small=device == "cpu", limit=float(limit))
    (part,) = chosen([name])
    prover(part)(setting, told.Teller(setting.output / _TOLD.format(name), fault))


if __name__ == "__main__":
    main(*sys.argv[1:])
