"""Claim: on slow links, steps by Lion's signs are three times as fast as by averaged gradients, and more.

CosmoFlow (LBANN's, 9.4 million parameters, cubes of 32) on processes of this machine, each a sample group in a network
namespace of its own, whose link sends 1 Gbit or 100 Mbit a second: lion-pytorch under DistributedDataParallel, and
voxload.parallel.Lion under it, in turns. Bytes are those that the links have sent. Wanted of the majority vote: 3 and 5
times as fast, and at most 2/32 of the bytes, and a hundredth more.

    python bench/lion.py [--ranks 4] [--turns 3] [--megabits 1000] [--json]   (root, or user namespaces, and iproute2)
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness.script import ROOT, finish, number, parser
from bench.optimising import links
from bench.optimising.rank import KINDS, PEER

WANTED = {1000: 3.0, 100: 5.0}
"""Times as fast, by megabits a second."""
MOST_BYTES = 2 / 32 * 1.01
VOTE = "majority"


@dataclass(frozen=True, slots=True)
class Row:
    """One optimiser on links of one speed."""

    megabits: int
    optimiser: str
    seconds: float
    """Of a step."""
    times_as_fast: float
    """As lion-pytorch under DistributedDataParallel."""
    sent_mib: float
    """By one rank in a step."""
    share_of_bytes: float
    """Of what that sends."""


def main() -> int:
    """Make links, let ranks train, and print."""
    words = parser(__doc__, size=32)
    words.add_argument("--ranks", type=number, default=4, help="processes (default 4)")
    words.add_argument("--steps", type=number, default=4, help="of each in a turn (default 4)")
    words.add_argument("--turns", type=number, default=3, help="in which each has its own (default 3)")
    words.add_argument("--megabits", type=number, choices=tuple(WANTED), help="a second, of links (default: each)")
    given = words.parse_args()
    links.enter()
    links.make(given.ranks)
    rows = []
    for megabits in (given.megabits,) if given.megabits else WANTED:
        links.limit(given.ranks, megabits)
        told = json.dumps({"size": given.size, "steps": given.steps, "turns": given.turns})
        found = _run(given.ranks, told, port=29500 + megabits)
        peer = found[PEER]
        for kind in KINDS:
            own = found[kind]
            ratio, share = peer["seconds"] / own["seconds"], own["sent"] / peer["sent"]
            rows.append(Row(megabits, kind, own["seconds"], ratio, own["sent"] / 2**20, share))

    def is_right(row: Row) -> bool:
        is_fast = row.times_as_fast >= WANTED[row.megabits] and row.share_of_bytes <= MOST_BYTES
        return row.optimiser != VOTE or is_fast

    return finish(given, rows, is_right)


def _run(ranks: int, told: str, *, port: int) -> dict[str, dict[str, float]]:
    """Return what each optimiser took, by name."""
    environ = os.environ | {"MASTER_ADDR": links.address(0), "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    environ |= {"GLOO_SOCKET_IFNAME": links.DEVICE, "PYTHONPATH": str(ROOT)}
    started = [
        subprocess.Popen(
            links.command(rank, "-m", "bench.optimising.rank", str(rank), str(ranks), told),
            env=environ,
            stdout=subprocess.PIPE if rank == 0 else None,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        printed, _ = started[0].communicate()
        if any(each.wait() for each in started):
            sys.exit("a rank failed: see above")
    finally:
        for each in started:
            each.kill()
    found: dict[str, dict[str, float]] = json.loads(printed.splitlines()[-1])["kinds"]
    return found


if __name__ == "__main__":
    sys.exit(main())
