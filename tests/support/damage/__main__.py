"""Claim: every fault of stored data is an error that names file, chunk and remedy.

Breaks tiny volumes of every format in every way that tests/support/damage/faults.py lists, reads them, and prints the
document of what was raised; docs/explanation/faults.md is that document.

    python -m tests.support.damage [--write]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.support.damage import faults, table

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "explanation" / "faults.md"


def main() -> int:
    """Parse the command line and run; returns 1 when a fault goes unnoticed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.damage",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--write", action="store_true", help="write docs/explanation/faults.md instead of printing")
    words = parser.parse_args()
    lines, silent = [], []
    for row in faults.rows():
        with tempfile.TemporaryDirectory() as folder:
            kind, message = row.outcome(Path(folder))
        lines.append((row, message))
        if kind is None:
            silent.append(row.name)
    text = table.document(lines)
    if words.write:
        DOCUMENT.write_text(text)
    else:
        sys.stdout.write(text)
    for name in silent:
        sys.stderr.write(f"no error: {name}\n")
    return 1 if silent else 0


if __name__ == "__main__":
    sys.exit(main())
