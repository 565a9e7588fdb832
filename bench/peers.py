"""Claim: what a block from another rank costs, by the way it comes, against a copy within one process.

Four processes each have a memory tier with blocks of 1, 16 and 64 MiB, and get blocks out of each other's tiers:

- `node`: attached memory of a rank of the same node.
- `mpi`: one-sided gets, with MPICH told that each rank has a node for itself (MPIR_CVAR_NOLOCAL): within one
  it would have the owner answer, which is not how blocks come between nodes.
- `tcp`: over loopback, with the job's token; `tcp+tls` encrypted, with `--tls CERT KEY`.

`one`: a single rank gets, the others do nothing. `all`: the four get at once, each from the next rank. Every round
times a memcpy of as many bytes right before the get, on the same ranks; figures are medians over rounds, those of `all`
of one rank. All ways verify the block's checksum. Two cores are too few for `all` to say what a node does.

    python bench/peers.py [--rounds 9] [--tls CERT KEY] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness.script import finish, parser
from voxload.benchmark.measure.turns import seconds
from voxload.cache.memory.tier import MemoryTier
from voxload.cache.peer.address import PeerAddress, host_identity, job_token
from voxload.cache.peer.client import TcpPeers
from voxload.cache.peer.mpi import MpiPeers, split_world
from voxload.cache.peer.node import NodePeers
from voxload.cache.peer.server import PeerServer
from voxload.cache.peer.shelf import Shelf
from voxload.cache.peer.tls import Tls
from voxload.cache.protocol import Answer, BlockKey, Peers
from voxload.geometry import Boundary, Box

RANKS = 4
MIB = 2**20
SIZES = {1: 8, 16: 3, 64: 2}
"""Size of a block in MiB: how many each rank has, so that what is got was not just in a core's cache."""

Block = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Row:
    """One way at one size."""

    way: str
    mib: int
    getters: str
    """One rank, or all."""
    gigabytes_per_second: float
    """Of one getter."""
    memcpy_gigabytes_per_second: float
    ratio: float
    """Of the two, the median over rounds."""


class Bench:
    """One of the ranks, with what it lends and what it gets by."""

    def __init__(self, stack: ExitStack, tls: Tls | None) -> None:
        self.line = split_world(0, 0)
        self.rank = int(self.line.rank)
        room = sum(mib * number for mib, number in SIZES.items()) * MIB
        self._memory = stack.enter_context(closing(MemoryTier(room + 16 * MIB, job="bench-peers", rank=self.rank)))
        token = self.line.bcast(job_token())
        shelf = Shelf([self._memory])
        servers = {"tcp": PeerServer(shelf, token=token)}
        if tls:
            servers["tcp+tls"] = PeerServer(Shelf([self._memory]), token=token, tls=tls)
        mine = {name: server.location for name, server in servers.items()}
        told = self.line.allgather((PeerAddress(host_identity(), arena=self._memory.path), mine))
        self.ways: dict[str, Peers] = {
            "node": NodePeers({group: address.arena for group, (address, _) in enumerate(told)}),
            "mpi": MpiPeers(self.line, self._memory.memory, timeout=60.0),
        }
        for name in servers:
            locations = {group: found[name] for group, (_, found) in enumerate(told)}
            self.ways[name] = TcpPeers(locations, token=token, timeout=60.0, tls=tls if "tls" in name else None)
        for server in servers.values():
            stack.callback(server.close)
        for peers in self.ways.values():
            stack.callback(peers.close)
        for mib, number in SIZES.items():
            for place in range(number):
                if not self._memory.put(_key(self.rank, mib, place), _block(self.rank, mib, place)):
                    raise SystemExit(f"no room for blocks in memory: {room} bytes a rank are needed")

    def meet(self) -> None:
        """Wait for all ranks without keeping a core busy, as MPI's own barrier does."""
        request = self.line.Ibarrier()
        while not request.Test():
            time.sleep(0.001)

    def time(self, way: str, mib: int, rounds: int, *, is_getting: bool) -> list[tuple[float, float]]:
        """Return what memcpy and get took in each round; nothing where this rank does not get."""
        self.meet()
        owner = (self.rank + 1) % RANKS
        out, source, target = np.zeros(mib * MIB, np.uint8), _block(self.rank, mib, 0), np.zeros(mib * MIB, np.uint8)
        found = []
        for number in range(rounds + 1 if is_getting else 0):
            place = number % SIZES[mib]
            key = _key(owner, mib, place)
            copying = seconds(lambda: np.copyto(target, source))
            begin = time.perf_counter()
            answer = self.ways[way].get_into(owner, key, out, wait=0)
            getting = time.perf_counter() - begin
            if answer is not Answer.GOT or out[0] != _seed(owner, mib, place):
                raise SystemExit(f"{way}: a block of {mib} MiB is {answer.value}, or not what was stored")
            if number:  # the first one connects
                found.append((copying, getting))
        self.meet()
        return found

    def rows(self, rounds: int) -> Iterator[Row]:
        """Time every way at every size; rank 0 alone has the rows."""
        for mib in SIZES:
            for way in self.ways:
                for getters, is_getting in (("one", self.rank == 0), ("all", True)):
                    gathered = self.line.gather(self.time(way, mib, rounds, is_getting=is_getting))
                    times = np.array([pair for pairs in gathered or [] for pair in pairs])
                    if len(times):
                        yield _row((way, mib, getters), times)


def _row(case: tuple[str, int, str], times: npt.NDArray[np.float64]) -> Row:
    copying, getting = np.median(times, axis=0)
    rate = case[1] * MIB / 1e9
    return Row(*case, rate / getting, rate / copying, float(np.median(times[:, 0] / times[:, 1])))


def _key(rank: int, mib: int, place: int) -> BlockKey:
    return BlockKey("bench", f"{rank}-{mib}-{place}", "x", Box((0,), (mib * MIB,)), Boundary.ZERO)


def _block(rank: int, mib: int, place: int) -> Block:
    return np.resize(np.arange(251, dtype=np.uint8) ^ _seed(rank, mib, place), mib * MIB)


def _seed(rank: int, mib: int, place: int) -> np.uint8:
    return np.uint8(17 * rank + 5 * place + mib)


def work(target: Path, rounds: int, tls: Tls | None) -> None:
    """Be one of the ranks; rank 0 writes what was found."""
    with ExitStack() as stack:
        bench = Bench(stack, tls)
        rows = [asdict(row) for row in bench.rows(rounds)]
        if bench.rank == 0:
            target.write_text(json.dumps(rows))


def launch(rounds: int, tls: list[str] | None) -> list[Row]:
    """Run the ranks under the mpiexec that belongs to this Python, and return what they found."""
    mpiexec = Path(sys.executable).parent / "mpiexec"
    if not mpiexec.exists():
        raise SystemExit(f'no {mpiexec}: pip install "voxload[mpi]" mpich')
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "rows.json"
        command = [str(mpiexec), "-n", str(RANKS), sys.executable, __file__, "--rank", str(target)]
        command += ["--rounds", str(rounds), *(["--tls", *tls] if tls else [])]
        subprocess.run(command, check=True, timeout=900, env=os.environ | {"MPIR_CVAR_NOLOCAL": "1"})
        return [Row(**row) for row in json.loads(target.read_text())]


def main() -> int:
    """Parse the command line and run."""
    options = parser(__doc__, rounds=9)
    options.add_argument("--tls", nargs=2, metavar=("CERT", "KEY"), help="a certificate for 127.0.0.1, its own root")
    options.add_argument("--rank", type=Path, help=argparse.SUPPRESS)
    words = options.parse_args()
    if words.rank:
        tls = Tls(Path(words.tls[0]), Path(words.tls[1]), Path(words.tls[0])) if words.tls else None
        work(words.rank, words.rounds, tls)
        return 0
    return finish(words, launch(words.rounds, words.tls))


if __name__ == "__main__":
    sys.exit(main())
