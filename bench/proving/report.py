"""Report: the table on the terminal, and everything as JSON; needs nothing but Python."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.proving.claim import Row, Verdict
from bench.proving.running import LOG, Ended

FORMAT = 1
"""Number of this form of the document."""
BAD = (Verdict.SHORT, Verdict.FAILED)
_TAIL = 12
"""Lines of a failed part's log that are shown."""


def show_all(ends: Sequence[Ended], output: Path) -> None:
    """Print the table of all claims, and the end of the log of each part that failed."""
    rows = [row for ended in ends for row in ended.rows]
    cells = [("claim", "asked", "measured", "verdict", "")]
    cells += [(row.claim.name, row.claim.asked, row.measured, str(row.verdict), row.why) for row in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(4)]
    print()
    for name, asked, measured, verdict, why in cells:
        left, right = f"{name:<{widths[0]}}  {asked:>{widths[1]}}", f"{verdict:<{widths[3]}}  {why}"
        print(f"{left}  {measured:>{widths[2]}}  {right}".rstrip())
    for ended in ends:
        if any(row.verdict is Verdict.FAILED for row in ended.rows):
            log = output / LOG.format(ended.part.name)
            lines = log.read_text(errors="replace").splitlines() if log.exists() else []
            print(f"\n{ended.part.name}: the last lines of {log}")
            print("\n".join(f"    {line}" for line in lines[-_TAIL:]))
    for name, outcome in _failed_tests(ends):
        print(f"\n{name}\n    {outcome}")
    counts = {verdict: sum(row.verdict is verdict for row in rows) for verdict in Verdict}
    print("\n" + ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count))


def _failed_tests(ends: Sequence[Ended]) -> list[tuple[str, str]]:
    """Return the tests that failed, and how."""
    outcomes = [pair for ended in ends for pair in ended.details.get("tests", {}).items()]
    return [(name, outcome) for name, outcome in outcomes if outcome.startswith("failed")]


def document(ends: Sequence[Ended], machine: Mapping[str, str]) -> dict[str, Any]:
    """Return everything as plain values."""
    return {
        "format": FORMAT,
        "machine": dict(machine),
        "rows": [row.document() for ended in ends for row in ended.rows],
        "seconds": {ended.part.name: ended.seconds for ended in ends},
        "details": {ended.part.name: ended.details for ended in ends},
    }


def read(path: Path) -> dict[str, Any]:
    """Return a document; raises ValueError at one of another form, or that is torn."""
    found: Any
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}; remove it, or name another folder") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f"{path}: no document of format {FORMAT}; remove it, or name another folder")
    return found


def kept(earlier: dict[str, Any], fresh: dict[str, Any]) -> dict[str, Any]:
    """Return a document with the parts of an earlier one that it does not have, where both are of one machine."""
    if earlier.get("machine") != fresh["machine"]:
        return fresh
    others = [row for row in earlier["rows"] if row["part"] not in fresh["seconds"]]
    merged = {name: earlier[name] | fresh[name] for name in ("seconds", "details")}
    return fresh | {"rows": others + fresh["rows"]} | merged


def read_rows(path: Path) -> tuple[dict[str, str], list[Row]]:
    """Return the machine and the rows of a document; raises ValueError at one of another form."""
    found = read(path)
    return found["machine"], [Row.of(row) for row in found["rows"]]
