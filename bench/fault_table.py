"""Claim: every fault of stored data is an error that names file, chunk and remedy.

Breaks tiny volumes of every format in every way that bench/damage/faults.py lists, reads them, and prints the
document of what was raised; docs/faults.md is that document.

    python bench/fault_table.py [--write]
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "faults.md"


def main() -> int:
    """Parse the command line and run; returns 1 when a fault goes unnoticed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write docs/faults.md instead of printing")
    words = parser.parse_args()
    faults, table = (importlib.import_module(f"bench.damage.{name}") for name in ("faults", "table"))
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
        print(text, end="")
    for name in silent:
        print(f"no error: {name}", file=sys.stderr)
    return 1 if silent else 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
