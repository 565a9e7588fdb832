"""Claim: networks of the field run on blocks as they are written, equal to one process, or say why they do not.

Each network runs in a process of its own, in float64, whole and split over virtual ranks, forward and backward, in
training and in evaluation, on uneven extents. Prints a table: what became of it, the worst relative errors of results
(at most 1e-10) and of gradients (at most 1e-8), and what it makes whole of a volume of 128^3 on eight blocks.

The tables of docs/explanation/engine.md are made of docs/reference/networks.json, into which
``--json docs/reference/networks.json`` puts what is found: ``--page`` prints them without comparing anything,
``--write`` puts them between the document's two marks, and ``--check`` tells whether it holds them.

    python bench/networks.py [--only NAME]... [--grid D,H,W]... [--json FILE]
    python bench/networks.py --page | --write | --check
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.documented import ROOT, Documented, table_row
from bench.harness import children
from bench.networking.diffusing import DIFFUSING
from bench.networking.monai import MONAI
from bench.networking.network import Network
from bench.networking.nnunet import NNUNET
from bench.networking.operators import OPERATORS
from bench.networking.own import OWN
from bench.networking.segmenting import SEGMENTING
from bench.networking.table import Entry, Outcome, Table, Verdict, head, row
from bench.networking.video import TORCHVISION

NETWORKS = (*OWN, *MONAI, *NNUNET, *TORCHVISION, *SEGMENTING, *OPERATORS, *DIFFUSING)
"""In the order of the table."""
DOCUMENT = ROOT / "docs" / "explanation" / "engine.md"
LAST = ROOT / "docs" / "reference" / "networks.json"
"""What the last run found."""
GRIDS = ("2,1,1", "2,1,2", "2,2,2")
_LIMIT = 3600
"""Seconds after which a network is given up as one that hangs."""


def compared(network: Network, grids: Sequence[str]) -> tuple[list[Outcome], str]:
    """Return what became of a network on each grid, and what it makes whole of a large volume."""
    try:
        printed, said = children.run("bench.networking.child", network.title, *grids, limit=_LIMIT)
    except TimeoutError as error:
        printed, said = "", str(error)
    lines: list[dict[str, Any]] = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    outcomes = [Outcome.read(line) for line in lines if "verdict" in line]
    whole = next((line["whole"] for line in lines if "whole" in line), "not told")
    for words in grids[len(outcomes) :]:
        last = (said.strip().splitlines() or ["ended without a word"])[-1]
        outcomes.append(Outcome(tuple(map(int, words.split(","))), Verdict.CRASHED, why=last))
    return outcomes, whole


def section() -> str:
    """Return the tables of the last run."""
    table = Table.read(LAST)
    libraries = dict.fromkeys(each.library for each in NETWORKS)
    return f"{table.counts(libraries)}\n\n{table.rows(each.title for each in NETWORKS)}"


DOCUMENTED = Documented(DOCUMENT, "bench/networks.py", section)


def _grid(words: str) -> str:
    """Return the text of a grid; raises ValueError, as argparse has it, for other text."""
    if len([each for each in words.split(",") if int(each) > 0]) != 3:
        raise ValueError(words)
    return words


_grid.__name__ = "grid D,H,W"  # by which argparse calls what it did not get


def main(words: Sequence[str] | None = None) -> int:
    """Compare and print; returns 1 where anything is wrong or crashed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="networks whose name holds this")
    parser.add_argument(
        "--grid", action="append", metavar="D,H,W", type=_grid, help=f"blocks per axis ({' '.join(GRIDS)})"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="put outcomes into this file, beside those of other networks"
    )
    DOCUMENTED.offer(parser).add_argument("--page", action="store_true", help="print the section")
    options = parser.parse_args(words)
    if options.page or options.write or options.check:
        return DOCUMENTED.run(options)
    chosen = [each for each in NETWORKS if not options.only or any(part in each.title for part in options.only)]
    if not chosen:
        parser.error(f"no network's name holds {' or '.join(map(repr, options.only))}")
    try:
        table = Table.read(options.json) if options.json else Table()
    except ValueError as error:
        parser.error(str(error))
    if options.json and not options.json.parent.is_dir():
        parser.error(f"--json: there is no folder {options.json.parent}")
    grids = options.grid or GRIDS
    print(head(), flush=True)
    bad = False
    for network in chosen:
        if not network.is_there:
            print(table_row([network.title, f"{network.library} is not installed", "", "", ""]), flush=True)
            continue
        outcomes, whole = compared(network, grids)
        print(row(network.title, outcomes, whole), flush=True)
        bad |= any(each.verdict in {Verdict.WRONG, Verdict.CRASHED} for each in outcomes)
        if options.json:
            table = table.with_entry(network.library, network.title, Entry(tuple(outcomes), whole))
            table.write(options.json)
    return int(bad)


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        print("stopped by Ctrl-C: what was compared until then is in the table, and in the file of --json")
        raise SystemExit(130) from None
