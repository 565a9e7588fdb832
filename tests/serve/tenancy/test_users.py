"""A service for all users: what is one's is nobody else's, unless the file's rights say so; by real users."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.serve.conftest import until
from tests.support import processes
from tests.support.others import folder_of_all
from tests.support.settled import settle
from voxload.serve.asking import figures
from voxload.serve.tenancy.front import ADMIN

pytestmark = [
    pytest.mark.usefixtures("no_leaks"),
    pytest.mark.skipif(os.geteuid() != 0, reason="acts for several users, which root alone may"),
]
ROOT = Path(__file__).parents[3]
ALICE, BOB = map(int, os.environ.get("VOXLOAD_TEST_USERS", "61001,61002").split(","))
GROUP = 61009
"""Numbers that nobody has, unless users were made for it: the kernel asks for no names."""
SUMS = [
    int(np.arange(2 * 8**3).reshape(2, 8, 8, 8)[:, i : i + 4, j : j + 4, k : k + 4].sum())
    for k in (0, 4)
    for j in (0, 4)
    for i in (0, 4)
]
MIB = 2**20


class Node:
    """A service for all users, and its users."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack = stack
        self.path = folder / "service" / "socket"
        program = Path(sys.executable).parent / "voxload"
        command = [
            str(program),
            "serve",
            "--all-users",
            "--memory",
            "16MiB",
            "--socket",
            str(self.path),
            "--threads",
            "2",
        ]
        self.process = stack.enter_context(processes.started(command, stderr=subprocess.PIPE, text=True, cwd=ROOT))
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        assert "serving" in line, line

    def user(self, uid: int, volume: Path, groups: str = "") -> User:
        """Return a user with a group of the same number."""
        command = [
            sys.executable,
            "-m",
            "tests.serve.tenancy.user",
            str(uid),
            str(uid),
            groups,
            str(self.path),
            str(volume),
        ]
        process = self._stack.enter_context(
            processes.started(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        )
        return User(process)

    def tenants(self) -> list[dict[str, Any]]:
        """Return what root is told."""
        found: list[dict[str, Any]] = figures(self.path.with_name(ADMIN))["tenants"]
        return found

    def tenant(self, uid: int, groups: tuple[int, ...] = ()) -> dict[str, Any]:
        """Return what root is told of one of them, once it answers."""

        def found() -> dict[str, Any] | None:
            return next(
                (
                    one
                    for one in self.tenants()
                    if (one["uid"], tuple(one["groups"])) == (uid, groups) and "keeps" in one
                ),
                None,
            )

        words: dict[str, Any] = until(found)
        return words

    def process_of(self, uid: int) -> int:
        """Return the number of a tenant's process."""
        (pid,) = (pid for pid in _children(self.process.pid) if _uid(pid) == uid)
        return pid


class User:
    """A process of a user's."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert self._line() == "ready"

    def __call__(self, *words: Any) -> Any:
        """Let it do something, and return what it found."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        return self._line()

    def all(self) -> list[Any]:
        """Connect, and want all blocks."""
        self("connect")
        return [self("want", number) for number in range(8)]

    def _line(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())


def _children(pid: int) -> Iterator[int]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                words = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(words[1]) == pid:
                yield int(folder.name)
                yield from _children(int(folder.name))


def _uid(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid if _effective(pid) is None else int(_effective(pid) or 0)


def _effective(pid: int) -> int | None:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next(int(line.split()[2]) for line in lines if line.startswith("Uid:"))


@pytest.fixture
def shared() -> Iterator[Path]:
    """Yield a folder into which all may look."""
    with folder_of_all() as folder:
        yield folder


@pytest.fixture
def node(shared: Path) -> Iterator[Node]:
    """Yield a service for all users."""
    with ExitStack() as stack:
        yield Node(stack, shared)


Give = Callable[..., Path]


@pytest.fixture
def given(shared: Path) -> Give:
    """Return a function that writes a volume which is somebody's."""

    def write(uid: int, mode: int, gid: int = 0) -> Path:
        path = shared / "volume.npy"
        np.save(path, np.arange(2 * 8**3, dtype=np.int32).reshape(2, 8, 8, 8))
        os.chown(path, uid, gid or uid)
        path.chmod(mode)
        settle(path)
        return path

    return write


THERE = [["there", one] for one in SUMS]
REFUSED = [["unavailable", None]] * 8


@pytest.mark.long
def test_what_all_may_read_is_read_once(node: Node, given: Give) -> None:
    """And given to who shows that they may, too."""
    volume = given(ALICE, 0o644)
    alice, bob = node.user(ALICE, volume), node.user(BOB, volume)
    assert alice.all() == THERE
    assert bob.all() == THERE
    assert node.tenant(ALICE)["keeps"]["reads"]["from_others"] == 0
    reads = node.tenant(BOB)["keeps"]["reads"]
    assert (reads["done"], reads["from_others"], reads["storage_bytes"]) == (8, 8, 0)


def test_what_is_ones_own_is_nobodys(node: Node, given: Give) -> None:
    """Whoever reads it first, and however often others ask."""
    volume = given(ALICE, 0o600)
    alice, bob = node.user(ALICE, volume), node.user(BOB, volume)
    assert bob.all() == REFUSED
    assert alice.all() == THERE
    assert [bob("want", number) for number in range(8)] == REFUSED
    reads = node.tenant(BOB)["keeps"]["reads"]
    assert (reads["from_others"], reads["storage_bytes"]) == (0, 0)
    assert node.tenant(BOB)["keeps"]["memory"]["blocks"] == 0


@pytest.mark.long
def test_rights_that_are_taken_away(node: Node, given: Give) -> None:
    """Hold for what is in memory, too: it is not what is stored now."""
    volume = given(ALICE, 0o644)
    alice, bob = node.user(ALICE, volume), node.user(BOB, volume)
    assert alice.all() == bob.all() == THERE
    volume.chmod(0o600)
    settle(volume)
    assert [bob("want", number) for number in range(8)] == REFUSED
    assert [alice("want", number) for number in range(8)] == THERE


@pytest.mark.long
def test_a_folder_that_is_closed(node: Node, given: Give, shared: Path) -> None:
    """Closes what is in it, whatever its own rights."""
    volume = given(ALICE, 0o644)
    folder = shared / "closed"
    folder.mkdir(mode=0o700)
    os.chown(folder, ALICE, ALICE)
    inside = folder / "volume.npy"
    volume.rename(inside)
    settle(inside)
    alice, bob = node.user(ALICE, inside), node.user(BOB, inside)
    assert alice.all() == THERE
    assert bob.all() == REFUSED


@pytest.mark.long
def test_groups_are_rights(node: Node, given: Give) -> None:
    """One user with a group and without are two tenants."""
    volume = given(ALICE, 0o640, GROUP)
    inside, outside = node.user(BOB, volume, str(GROUP)), node.user(BOB, volume)
    assert inside.all() == THERE
    assert outside.all() == REFUSED
    assert node.tenant(BOB, (GROUP,))["keeps"]["memory"]["blocks"] == 8
    assert node.tenant(BOB)["keeps"]["memory"]["blocks"] == 0


@pytest.mark.long
def test_nobody_writes_to_what_they_are_given(node: Node, given: Give) -> None:
    """Nor makes it shorter, nor looks into the process that does, though it is their own user's."""
    volume = given(ALICE, 0o644)
    alice = node.user(ALICE, volume)
    assert alice.all() == THERE
    assert set(alice("write_to_memory")) <= {"PermissionError", "OSError"}
    pid = node.process_of(ALICE)
    assert alice("look_into", pid) == ["PermissionError"] * 4
    assert alice("want", 0) == THERE[0]


@pytest.mark.long
def test_a_quota_is_ones_own(node: Node, given: Give) -> None:
    """What one has too much of is theirs to lose; the others have what they had."""
    volume = given(ALICE, 0o644)
    alice, bob = node.user(ALICE, volume), node.user(BOB, volume)
    assert alice.all() == bob.all() == THERE
    until(lambda: node.tenant(ALICE)["memory"] > 2 * MIB)
    words = ["voxload", "serve", "quota", "0", "--user", str(ALICE), "--socket", str(node.path.with_name(ADMIN))]
    program = Path(sys.executable).parent / words[0]
    processes.run([str(program), *words[1:]], check=True, cwd=ROOT)
    until(lambda: node.tenant(ALICE)["memory"] < 2 * MIB)
    until(lambda: node.tenant(BOB)["memory"] > 8 * MIB)
    assert node.tenant(BOB)["keeps"]["memory"]["blocks"] == 8
    assert sum(one["memory"] for one in node.tenants()) <= 16 * MIB
    assert [bob("want", number) for number in range(8)] == THERE


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_who_ends_or_stops_their_process(node: Node, given: Give, number: signal.Signals) -> None:
    """Has it made anew; others are served, and what was theirs is given to those who need it."""
    volume = given(ALICE, 0o644)
    alice, bob = node.user(ALICE, volume), node.user(BOB, volume)
    assert alice.all() == bob.all() == THERE
    pid = node.process_of(ALICE)
    # Who has no more than the least has nothing to give up. One who did nothing for a while has no session any more.
    until(lambda: alice.all() == THERE and node.tenant(ALICE)["memory"] > 2 * MIB)
    assert alice("send", pid, int(number)) == "done"
    assert [bob("want", one) for one in range(8)] == THERE
    if number is signal.SIGSTOP:
        assert {one["uid"] for one in node.tenants()} == {ALICE, BOB}
        assert all("keeps" not in one for one in node.tenants() if one["uid"] == ALICE)
        words = [str(Path(sys.executable).parent / "voxload"), "serve", "quota", "2MiB", "--user", str(ALICE)]
        processes.run([*words, "--socket", str(node.path.with_name(ADMIN))], check=True, cwd=ROOT)
    until(lambda: not Path(f"/proc/{pid}").exists())
    assert node.user(ALICE, volume).all() == THERE
    assert [bob("want", one) for one in range(8)] == THERE
    assert bob("send", node.process_of(ALICE), int(signal.SIGKILL)) == "PermissionError"


@pytest.mark.long
def test_only_root_is_told_of_all(node: Node, given: Give) -> None:
    """Others are not let in there."""
    volume = given(ALICE, 0o644)
    alice = node.user(ALICE, volume)
    status = node.path.with_name(ADMIN).stat()
    assert (status.st_uid, status.st_mode & 0o777) == (0, 0o600)
    assert alice.all() == THERE
    assert [one["uid"] for one in node.tenants()] == [ALICE]
