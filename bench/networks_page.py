"""Claim: which networks of the field run on blocks, as the last run of bench/networks.py found.

Prints the tables of docs/engine.md, or writes them between its two marks; with --check it tells whether the document
holds them. They are made of docs/networks.json, into which ``python bench/networks.py --json docs/networks.json`` puts
what it finds.

    python bench/networks_page.py [--check | --write]
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.documented import ROOT, Documented
from bench.networking.table import Table
from bench.networking.zoo import NETWORKS

DOCUMENT = ROOT / "docs" / "engine.md"
LAST = ROOT / "docs" / "networks.json"
"""What the last run found."""


def section(last: Path = LAST) -> str:
    """Return what stands between the marks."""
    table = Table.read(last)
    libraries = dict.fromkeys(each.library for each in NETWORKS)
    return f"{table.counts(libraries)}\n\n{table.rows(each.title for each in NETWORKS)}"


DOCUMENTED = Documented(DOCUMENT, "bench/networks_page.py", section)


if __name__ == "__main__":
    sys.exit(DOCUMENTED.main(__doc__))
