"""Claim: what has been proven on a GPU, and what has not.

Prints the tables of docs/reference/gpu.md, or writes them between its two marks; with --check it tells whether the
document holds them. They are made of docs/reference/gpu.json, which is the gpu.json of the last run of bench/gpu.py;
without it every line says that it was not run.

    python bench/gpu_page.py [--check | --write]
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.documented import ROOT, Documented, table_row
from bench.proving.claim import Row, Verdict
from bench.proving.parts import PARTS
from bench.proving.report import read_rows

DOCUMENT = ROOT / "docs" / "reference" / "gpu.md"
LAST = ROOT / "docs" / "reference" / "gpu.json"
"""What the last run found."""
_NOTHING = "Nothing of this has run on a GPU yet."


def section(last: Path = LAST) -> str:
    """Return what stands between the marks."""
    rows = {(part.name, claim.name): Row(part.name, claim, Verdict.NOT_RUN) for part in PARTS for claim in part.claims}
    head = _NOTHING
    if last.exists():
        machine, found = read_rows(last)
        head = "The last run: " + ", ".join(f"{name} {value}" for name, value in machine.items()) + "."
        rows |= {key: row for row in found if (key := (row.part, row.claim.name)) in rows}
    lines = [table_row(["part", "claim", "asked", "measured", "verdict"]), table_row(["---"] * 5)]
    lines += [
        table_row([row.part, row.claim.name, row.claim.asked, row.measured, _verdict(row)]) for row in rows.values()
    ]
    return f"{head}\n\n" + "\n".join(lines)


def _verdict(row: Row) -> str:
    return f"{row.verdict}: {row.why}" if row.why else str(row.verdict)


DOCUMENTED = Documented(DOCUMENT, "bench/gpu_page.py", section)


if __name__ == "__main__":
    sys.exit(DOCUMENTED.main(__doc__))
