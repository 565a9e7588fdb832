"""Four real ranks, two sample groups of two blocks, share their blocks: the stream is torch's, whatever goes wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr

from tests.loader.caching.shared_cache_ranks import Plan
from tests.loader.caching.shared_world import LAUNCHERS
from tests.support import processes
from tests.support.examples import IS_THOROUGH
from tests.support.ranks import printed_by_ranks
from tests.support.throttle.process import Served, throttled_storage
from voxload.cache.memory.tier import MemoryTier

ROOT = Path(__file__).parents[3]
MPIEXEC = Path(sys.executable).parent / "mpiexec"
RANKS, LINES = 4, 2
MANY, SERVED = 64, 12
LIMIT = 150
"""Seconds that a launch may take on a machine that does much else."""

Rows = dict[str, list[dict[str, Any]]]
"""Of each case, what each rank printed."""


def _started(session: int) -> list[str]:
    """Return the processes of a session that still run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().rpartition(") ")
        except (FileNotFoundError, ProcessLookupError):
            continue
        state, fields = rest[0], rest.split()
        if int(fields[3]) == session and state not in "ZX":
            found.append(name)
    return found


def _run(command: Sequence[str], **words: str) -> str:
    """Return what a command printed, in a session of its own and with an environment as a user's shell has it.

    No process may be left of it.
    """
    environ = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    started = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environ | {"OMP_NUM_THREADS": "1"} | words,
        start_new_session=True,
    )
    try:
        output, errors = started.communicate(timeout=processes.LIMIT)
        assert started.returncode == 0, errors[-8000:]
        assert not _started(started.pid)
        return output
    finally:
        if _started(started.pid):
            os.killpg(started.pid, signal.SIGKILL)
        started.communicate()


def _rows(output: str) -> tuple[Rows, list[list[str]]]:
    ranks = sorted((json.loads(line) for line in output.splitlines()), key=lambda row: int(row["rank"]))
    assert len(ranks) == RANKS
    return {name: [rank["cases"][name] for rank in ranks] for name in ranks[0]["cases"]}, [r["left"] for r in ranks]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of 64 raw universes of 8^3 x 4."""
    path = tmp_path_factory.mktemp("many")
    rng = np.random.default_rng(1)
    for index in range(MANY):
        with h5py.File(path / f"u{index:02}.h5", "w") as file:
            file.create_dataset("full", data=rng.integers(0, 900, (8, 8, 8, 4)).astype("<i2"))
            file["unitPar"] = rng.uniform(-1, 1, 2)
    return path


@pytest.fixture(scope="module")
def zarrs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of universes in two chunks, one for each rank of a group."""
    path = tmp_path_factory.mktemp("served")
    rng = np.random.default_rng(2)
    for index in range(SERVED):
        group = zarr.create_group(path / f"u{index:02}.zarr")
        group.create_array("full", data=rng.integers(0, 900, (8, 8, 8, 4)).astype("<i2"), chunks=(4, 8, 8, 4))
    return path


class Launch:
    """What the ranks of one launch printed, and what the storage's server says."""

    def __init__(self, output: str, served: Sequence[Served] = ()) -> None:
        self.rows, self.left = _rows(output)
        self.served = served

    def check_streams(self) -> None:
        """Every rank got torch's stream in every case, and nothing is left."""
        assert self.rows
        wrong = [name for name, ranks in self.rows.items() if not all(row["same"] and row["steps"] for row in ranks)]
        assert not wrong
        assert self.left == [[]] * RANKS
        segments = {row["segment"] for ranks in self.rows.values() for row in ranks} - {""}
        assert segments
        assert not [path for path in segments if Path(path).exists()]

    def reads(self, name: str) -> list[int]:
        """Return how many blocks each line read from the storage."""
        return [sum(row["storage"]["fetches"] for row in self.rows[name][line::LINES]) for line in range(LINES)]


@pytest.fixture(scope="module")
def torchrun(folder: Path, many: Path, zarrs: Path, tmp_path_factory: pytest.TempPathFactory) -> Launch:
    """Run four ranks under torchrun, whose blocks come in place or by TCP."""
    place = tmp_path_factory.mktemp("torchrun")
    names = sorted(path.name for path in zarrs.iterdir())
    with throttled_storage(zarrs, bandwidth=1e9, latency=0) as storage:
        plan = Plan(
            str(place),
            str(folder),
            many=str(many),
            urls=[f"{storage.url}/{name}" for name in names],
            local=[str(zarrs / name) for name in names],
            peers=["auto", "tcp"],
            rooms=["larger", "tiny"] if IS_THOROUGH else ["tiny"],
        )
        (place / "plan").write_text(json.dumps(asdict(plan)))
        output = printed_by_ranks("tests.loader.caching.shared_cache_ranks", place / "plan", ranks=RANKS)
        return Launch(output, storage.served())


@pytest.fixture(scope="module")
def mpiexec(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Launch:
    """Run four ranks under mpiexec, whose blocks come by one-sided gets.

    Ranks talk as if each had a node for itself: inside a node MPICH would have owners answer.
    """
    if not MPIEXEC.exists():
        pytest.skip("needs the mpich wheel")
    place = tmp_path_factory.mktemp("mpiexec")
    plan = Plan(str(place), str(folder), peers=["mpi"], rooms=["half"])
    (place / "plan").write_text(json.dumps(asdict(plan)))
    command = [str(MPIEXEC), "-n", str(RANKS), sys.executable, "-m", "tests.loader.caching.shared_cache_ranks"]
    return Launch(_run([*command, str(place / "plan")], MPIR_CVAR_NOLOCAL="1"))


@pytest.fixture(scope="module")
def losses(request: pytest.FixtureRequest, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """Return what became of the worlds that end badly and are asked for; no process may be left of them."""
    before = processes.descendants()
    worlds = [mark.args[0] for item in request.session.items for mark in item.iter_markers("world")]
    place = tmp_path_factory.mktemp("losses")
    found: Rows = json.loads(printed_by_ranks("tests.loader.caching.shared_losses", place, folder, *worlds, ranks=1))
    assert not processes.descendants() - before
    return found


def test_the_stream_is_torchs(torchrun: Launch) -> None:
    """Every policy, tiers, orders, faults: each rank's stream is that of a loader without cache, bit for bit."""
    torchrun.check_streams()


@pytest.mark.long
def test_the_stream_is_torchs_under_mpi(mpiexec: Launch) -> None:
    """The same by one-sided gets, of which some do come."""
    mpiexec.check_streams()
    assert sum(row["peer"]["fetches"] for ranks in mpiexec.rows.values() for row in ranks) > 0


@pytest.mark.parametrize("peers", ["auto", "tcp"])
def test_tiers_that_hold_the_data_spare_the_storage_all_but_the_first_reads(torchrun: Launch, peers: str) -> None:
    """In five epochs each line reads every block once."""
    name = f"{peers} holds"
    assert torchrun.reads(name) == [MANY] * LINES
    assert torchrun.rows[name][0]["fewest"] == MANY


def test_the_server_sends_each_block_once(torchrun: Launch) -> None:
    """So says the server's own log."""
    chunks = [one for one in torchrun.served if "/c/" in one.path]
    assert len(chunks) == len({one.path for one in chunks}) == SERVED * LINES
    assert torchrun.reads("served") == [SERVED] * LINES


@pytest.mark.parametrize("policy", ["clairvoyant", "nopfs"])
def test_tiers_that_hold_half_of_it_spare_what_was_planned(torchrun: Launch, policy: str) -> None:
    """Reads of the storage are those that were planned, but for one in twenty."""
    for line, reads in enumerate(torchrun.reads(f"half {policy}")):
        row = torchrun.rows[f"half {policy}"][line]
        assert row["fewest"] <= reads <= 1.05 * row["planned"]
        assert row["planned"] < 1.05 * row["fewest"]


def test_who_has_another_token_gets_nothing(torchrun: Launch) -> None:
    """A member of the job gets blocks out of a training rank; a stranger does not even learn what is there."""
    row = torchrun.rows["served"][0]
    assert "got" in row["member"]
    assert row["member filled"] == "True"
    assert row["stranger"] == "lost"
    assert row["stranger filled"] == "False"


def _told(rows: Sequence[dict[str, Any]]) -> str:
    return " ".join(text for row in rows for text in row["warnings"])


@pytest.mark.parametrize("case", ["tcp ServerGone", "tcp ServerSilent"])
def test_a_peer_that_does_not_answer_is_asked_no_more(torchrun: Launch, case: str) -> None:
    """Its line counts what did not come, and reads the storage instead; nobody else does."""
    first, *others = torchrun.rows[case]
    assert first["peer"]["misses"] >= 3
    assert first["distrusted"] == [1]
    assert all(row["distrusted"] == [] for row in others)
    assert first["storage"]["fetches"] > others[1]["storage"]["fetches"]


@pytest.mark.parametrize(
    "case", ["auto MemoryGarbage", "tcp MemoryGarbage", pytest.param("mpi MemoryGarbage", marks=pytest.mark.long)]
)
def test_memory_that_was_written_over_is_noticed(request: pytest.FixtureRequest, case: str) -> None:
    """By its owner and by its peers."""
    launch: Launch = request.getfixturevalue("mpiexec" if case.startswith("mpi") else "torchrun")
    rows = launch.rows[case]
    assert rows[0]["peer"]["misses"] > 0
    assert rows[2]["memory"]["misses"] > 0
    assert "does not agree with its checksum" in _told(rows[2:3])


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("tcp DiskGarbage", "is damaged"),
        ("auto DiskGone", "the folder is gone"),
        ("auto DiskFull", "File too large"),
    ],
)
def test_trouble_with_a_disk_is_told(torchrun: Launch, case: str, words: str) -> None:
    """Once a rank, in words; blocks come from elsewhere."""
    assert words in _told(torchrun.rows[case])
    assert max(row["storage"]["fetches"] for row in torchrun.rows[case]) > 6


def test_troubled_storage_was_troubled(torchrun: Launch) -> None:
    """The faults that leave no trace did happen."""
    assert sum(row["refused"] for row in torchrun.rows["auto StorageFlaky"]) > 0
    assert [row["hung"] for row in torchrun.rows["auto StorageHangs"]] == [0, 0, 1, 0]


@pytest.mark.long
def test_troubled_storage_was_troubled_under_mpi(mpiexec: Launch) -> None:
    """As above."""
    assert [row["hung"] for row in mpiexec.rows["mpi StorageHangs"]] == [0, 0, 1, 0]


def _check_ends(rows: Sequence[dict[str, Any]]) -> None:
    """Every rank ended before its waits did, what it saw until then was right, and the next tier finds nothing left."""
    assert all(row["faulty"] for row in rows)
    assert all(row["same"] for row in rows)
    assert not any(row["is_late"] for row in rows)
    with closing(MemoryTier(2**17, job="after")):
        assert not [row["segment"] for row in rows if Path(row["segment"]).exists()]


@pytest.mark.long
@pytest.mark.world("gone")
def test_storage_that_is_gone_for_good_ends_all_ranks(losses: Rows) -> None:
    """The rank that sees it names the file; the others learn that it ended, from the loader or from their own step."""
    rows = losses["gone"]
    _check_ends(rows)
    assert [row["code"] for row in rows] == [1] * RANKS
    assert rows[1]["error"].startswith("StorageError: ")
    assert ".h5: found Input/output error" in rows[1]["error"]
    assert "sample group 0, step" in rows[0]["error"] or "Connection closed by peer" in rows[0]["error"]
    assert all(row["error"] for row in rows)


@pytest.mark.world("killed")
def test_a_rank_that_is_killed_ends_its_group(losses: Rows) -> None:
    """Its group cannot go on; another one that has nothing to do with it finishes, with torch's stream."""
    rows = losses["killed"]
    _check_ends(rows)
    assert [row["code"] for row in rows] == [1, -signal.SIGKILL, 0, 0]
    assert "a rank that does not answer" in rows[0]["error"]
    assert [row["epochs"] for row in rows[2:]] == [4, 4]


@pytest.mark.long
@pytest.mark.world("killed, orders exchanged")
def test_a_rank_that_is_killed_ends_all_that_exchange_orders(losses: Rows) -> None:
    """Where every epoch's orders are exchanged, the other group learns it at the next one."""
    rows = losses["killed, orders exchanged"]
    _check_ends(rows)
    assert [row["code"] for row in rows] == [1, -signal.SIGKILL, 1, 1]
    assert all("a rank that does not answer" in row["error"] for row in (rows[0], *rows[2:]))


@pytest.mark.long
@pytest.mark.world("stuck")
def test_a_rank_that_hangs_is_left_behind(losses: Rows) -> None:
    """Ranks wait for one whose storage never answers no longer than was said, and a signal ends that one."""
    rows = losses["stuck"]
    _check_ends(rows)
    assert [row["code"] for row in rows] == [1, -signal.SIGTERM, 1, 1]


@pytest.mark.long
@pytest.mark.world("stuck, timed")
def test_a_rank_that_gives_a_hanging_read_up_ends(losses: Rows) -> None:
    """With a time-out it raises, its process ends though the read never does, and the others learn it then."""
    rows = losses["stuck, timed"]
    _check_ends(rows)
    assert [row["code"] for row in rows] == [1] * RANKS
    assert "DataLoader timed out after" in rows[1]["error"]
