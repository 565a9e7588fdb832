"""Two users of one machine: nobody reads, forges, holds up or stops what the other one keeps, and both work."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cache.two_users import A, B, done
from voxload.cache.memory.segment import PREFIX, SHARED

pytestmark = [
    pytest.mark.usefixtures("no_leaks"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become two users"),
]

KINDS = ("forged", "fifo", "link", "folder", "socket", "names", "subfolder")
OPEN = """
with closing(DiskTier(shared / "a", CAPACITY)) as made:
    for name in ("good", *sys.argv[4:]):
        made.put(laws.key_of(name), laws.block_of(0))
    for name in sys.argv[4:]:
        made.drop(laws.key_of(name))  # the folder of the block stays
for path in (shared / "a", *(path for path in (shared / "a").rglob("*") if path.is_dir())):
    path.chmod(0o777)
"""
FORGE = """
with closing(DiskTier(shared / "b", CAPACITY)) as made:
    for name in sys.argv[4:]:
        made.put(laws.key_of(name), laws.block_of(0) + 1)
for name in sys.argv[4:]:
    source, place = path_of(shared / "b", laws.key_of(name)), path_of(shared / "a", laws.key_of(name))
    if name == "subfolder":
        place.parent.rmdir()
        place.parent.symlink_to(source.parent)
        continue
    if name == "forged":
        place.write_bytes(source.read_bytes())
    elif name == "fifo":
        os.mkfifo(place, 0o666)
    elif name == "link":
        place.symlink_to(source)
    elif name == "folder":
        place.mkdir()
    elif name == "socket":
        with closing(socket.socket(socket.AF_UNIX)) as listener:
            os.chdir(place.parent)
            listener.bind(place.name)
    elif name == "names":
        os.link(source, place)
for name in ("ab" * 16, "cd" * 16):
    os.mkfifo(shared / "a" / ".tenants" / name)
(shared / "a" / ".partial" / "left").mkdir()
for path in (shared / "b").rglob("*"):
    path.chmod(0o777)
(shared / "b").chmod(0o777)
"""
USE = """
for path in (shared / "a", *(path for path in (shared / "a").rglob("*") if path.is_dir() and not path.is_symlink())):
    if path.stat().st_uid == user:
        path.chmod(0o700)
with closing(DiskTier(shared / "a", CAPACITY)) as made:
    keys = [laws.key_of(name) for name in sys.argv[4:]]
    say("inventory", *made.inventory(keys))
    for name, key in zip(sys.argv[4:], keys):
        stored, held = made.put(key, laws.block_of(0)), made.holds(key)
        made.drop(key)
        say(name, fetched(made, name), stored, held)
    files = BlockFiles(made.path)
    say("files", *(fetched(files, name) for name in sys.argv[4:]))
    say("good", fetched(made, "good"), made.put(laws.key_of("new"), laws.block_of(0)), fetched(made, "new"))
for text in warned:
    say("warned", text)
"""


def test_what_another_user_put_into_a_folder_is_no_block(user: Callable[..., Any], shared: Path) -> None:
    """Forged files, FIFOs, links, folders, sockets, second names, folders of blocks: no, and no yes to a put either."""
    names = list(KINDS)
    assert done(user(A, OPEN, *names)) == []
    assert done(user(B, FORGE, *names)) == []
    there = {path for path in (shared / "a").rglob("*") if path.lstat().st_uid == B}
    said = [line.split() for line in done(user(A, USE, *names))]
    assert said[0] == ["inventory"] + ["False"] * len(names)
    assert said[1 : len(names) + 1] == [[name, "none", "False", "False"] for name in names]
    assert said[len(names) + 1] == ["files"] + ["none"] * len(names)
    assert said[len(names) + 2] == ["good", "true", "True", "true"]
    told = " ".join(" ".join(words) for words in said[len(names) + 3 :])
    for kind in ("a file", "a FIFO", "a symbolic link", "a directory", "a socket", "a file with 2 names"):
        assert f"found {kind}" in told, told
    assert f"of user {B}" in told
    assert {path for path in (shared / "a").rglob("*") if path.lstat().st_uid == B} == there


REFUSED = """
try:
    DiskTier(shared / sys.argv[4], CAPACITY).close()
except UsageError as error:
    say(error)
"""
OF_B = """
with closing(DiskTier(shared / "b", CAPACITY)) as made:
    made.put(laws.key_of("x"), laws.block_of(0) + 1)
for path in (shared / "b", *(shared / "b").rglob("*")):
    path.chmod(0o755 if path.is_dir() else 0o644)
(shared / "link").symlink_to(shared / "a")
"""
LEDGER = """
(shared / "a").mkdir()
(shared / "a").chmod(0o777)
"""


def test_a_folder_of_another_user_is_refused(user: Callable[..., Any], shared: Path) -> None:
    """At creation, by name and owner: the folder, a link that chooses it, and a ledger that somebody laid there."""
    done(user(B, OF_B))
    done(user(A, LEDGER))
    done(user(B, "os.mkfifo(shared / 'a' / '.voxload-tier')"))
    (shared / "a").chmod(0o700)
    for name, words in (("b", f"of user {B}"), ("link", "symbolic link"), ("a", "a FIFO of user")):
        (said,) = done(user(A, REFUSED, name))
        assert "disk tier" in said
        assert words in said


SWAPPED = """
with closing(DiskTier(shared / "open" / "tier", CAPACITY)) as made:
    made.put(laws.key_of("x"), laws.block_of(0))
    say("open")
    sys.stdin.readline()
    say(fetched(made, "x"), fetched(made, "y"), made.put(laws.key_of("z"), laws.block_of(0)), *warned)
"""
SWAP = """
with closing(DiskTier(shared / "b", CAPACITY)) as made:
    for name in "xy":
        made.put(laws.key_of(name), laws.block_of(0) + 1)
for path in (shared / "b", *(shared / "b").rglob("*")):
    path.chmod(0o777)
(shared / "open" / "tier").rename(shared / "open" / "away")
(shared / "b").rename(shared / "open" / "tier")
"""


def test_a_folder_that_was_replaced_is_not_the_one_that_was_looked_at(user: Callable[..., Any], shared: Path) -> None:
    """Who may rename folders above a tier's puts another one in its place: nothing comes out of that, or goes there."""
    (shared / "open").mkdir()
    (shared / "open").chmod(0o777)
    with user(A, SWAPPED) as job:
        assert job.hear() == "open"
        done(user(B, SWAP))
        there = set((shared / "open" / "tier").rglob("*"))
        job.say("go on")
        found, other, stored, *warned = job.hear().split()
        assert job.wait() == 0
    assert (found, other, stored) == ("true", "none", "False")
    assert "the folder is gone" in " ".join(warned)
    assert set((shared / "open" / "tier").rglob("*")) == there


KEEP = """
with closing(DiskTier(shared / "deep" / "tier", CAPACITY)) as disk, closing(MemoryTier(CAPACITY, job="test")) as memory:
    disk.put(laws.key_of("x"), laws.block_of(0))
    memory.put(laws.key_of("x"), laws.block_of(0))
    say(path_of(shared / "deep" / "tier", laws.key_of("x")))
    say(memory.path)
    sys.stdin.readline()
"""
PEEK = """
for path in sys.argv[4:]:
    for flags in (os.O_RDONLY, os.O_RDWR):
        try:
            os.open(path, flags)
            say("open", path)
        except PermissionError:
            pass
for attempt in (lambda: list((shared / "deep" / "tier").iterdir()), (shared / "deep" / "mine").mkdir):
    try:
        say("done", attempt())
    except PermissionError:
        pass
"""


@pytest.mark.parametrize("umask", ["0", "077"])
def test_nobody_else_reads_the_blocks(user: Callable[..., Any], umask: str) -> None:
    """Neither those on disk nor those in memory, whatever umask they were made under."""
    with user(A, KEEP, umask=umask) as job:
        paths = job.hear(), job.hear()
        assert done(user(B, PEEK, *paths)) == []
        job.say("end")
        assert job.wait() == 0


ATTACH = """
from voxload.cache.peer.node import NodePeers
for path in sys.argv[4:]:
    with closing(NodePeers({0: path})) as peers:
        say(*peers.groups, *warned)
        warned.clear()
"""
LAID = """
with closing(MemoryTier(CAPACITY, job="test")) as memory:
    memory.put(laws.key_of("x"), laws.block_of(0) + 1)
    os.chmod(memory.path, 0o666)
    os.mkfifo(shared / "fifo", 0o666)
    os.link(memory.path, f"{memory.path}-again")
    os.unlink(f"{memory.path}-again")
    say(memory.path)
    sys.stdin.readline()
"""


def test_memory_of_another_user_is_not_read(user: Callable[..., Any], shared: Path) -> None:
    """A whole segment with valid sums, and a FIFO: a warning, and the block comes from elsewhere."""
    with user(B, LAID) as other:
        path = other.hear()
        said = done(user(A, ATTACH, path, str(shared / "fifo")))
        other.say("end")
        assert other.wait() == 0
    assert len(said) == 2
    assert f"of user {B}" in said[0]
    assert "a FIFO" in said[1]


TAKEN = """
import secrets
names = iter(["taken", "taken", "free", *["taken"] * 9])
secrets.token_hex = lambda *_: next(names)
with closing(MemoryTier(CAPACITY, job=sys.argv[4])) as memory:
    say(memory.path)
    memory.put(laws.key_of("x"), laws.block_of(0))
    with closing(AttachedMemory(memory.path)) as attached:
        say(fetched(attached, "x"))
try:
    MemoryTier(CAPACITY, job=sys.argv[4])
except VoxloadError as error:
    say(error)
"""

LAY = """
import fcntl
with open(sys.argv[4], "wb") as file:
    os.chmod(sys.argv[4], 0o666)
    fcntl.flock(file, fcntl.LOCK_EX)  # root's tiers of older versions remove what nobody holds
    file.write(bytes(2**12))
    file.flush()
    say("laid")
    sys.stdin.readline()
"""


def test_names_in_memory_that_another_user_took(user: Callable[..., Any]) -> None:
    """Are left alone: the next random name serves, and where all are taken, it is said. Nobody removes them."""
    job = f"test-names-{uuid.uuid4()}"  # other runs on this machine have names of their own
    taken = SHARED / f"{PREFIX}{job}-0-taken"
    try:
        with user(B, LAY, str(taken)) as other:
            assert other.hear() == "laid"
            path, found, error = done(user(A, TAKEN, job))
            assert taken.read_bytes() == bytes(2**12)
            assert path == str(taken.with_name(f"{PREFIX}{job}-0-free"))
            assert found == "true"
            assert "all taken" in error
            other.say("end")
            assert other.wait() == 0
    finally:
        taken.unlink(missing_ok=True)


BOTH = """
number = user - 61000
with closing(DiskTier(shared, CAPACITY)) as disk, closing(MemoryTier(CAPACITY, job="test")) as memory:
    for tier in (disk, memory):
        assert tier.put(laws.key_of("x"), laws.block_of(0) + number)
    say(disk.path)
    sys.stdin.readline()
    same = [laws.same_bits(laws.get(tier, laws.key_of("x"), laws.block_of(0)), laws.block_of(0) + number)
            for tier in (disk, memory)]
    say(*same, *warned)
"""


def test_two_users_with_the_same_names_both_work(user: Callable[..., Any], shared: Path) -> None:
    """In a folder for all, each has a tier of their own; in memory, too."""
    with user(A, BOTH) as one, user(B, BOTH) as two:
        assert [one.hear(), two.hear()] == [str(shared / f"voxload-{number}") for number in (A, B)]
        for child in (one, two):
            child.say("go on")
            assert child.hear() == "True True"
            assert child.wait() == 0
