"""KernelCounter: bytes and processor time of real processes that read real files, however briefly they live."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from voxload.benchmark.cold.pagecache import evict, file_system
from voxload.benchmark.measure.kernel import KernelCounter, family, status_of

pytestmark = pytest.mark.usefixtures("page_cache")

SIZE = 8 << 20
START = 200_000
"""Bytes that an interpreter may read while it starts; what a test reads is far more."""
CHILD = "import sys; [len(open(name, 'rb', buffering=0).read()) for name in sys.argv[1:]]; print('read', flush=True)"
WAIT = "; sys.stdin.read()"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file of random bytes."""
    (tmp_path / "x").write_bytes(os.urandom(SIZE))
    return tmp_path / "x"


@contextmanager
def reading(program: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program that says when it has read, and ends with its input."""
    command = [sys.executable, "-S", "-E", "-c", program, *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "read\n"
        yield process


def test_bytes_asked_are_those_of_read_calls(path: Path) -> None:
    """Exactly, and what the counter itself reads is left out."""
    counter = KernelCounter()
    mark = counter.mark()
    with path.open("rb", buffering=0) as file:
        assert len(file.read(SIZE // 2)) == SIZE // 2
    assert counter.since(mark).asked == SIZE // 2
    later = counter.mark()
    assert counter.since(later).asked == 0
    assert counter.since(mark).asked == SIZE // 2


def test_device_bytes_are_those_of_a_cold_file(path: Path) -> None:
    """Within 2 % of the file when it is read from the device, and none when it is in memory."""
    if file_system(path) in ("tmpfs", "ramfs"):
        pytest.skip("the temporary folder's files live in memory")
    counter = KernelCounter()
    evict([path])
    mark = counter.mark()
    path.read_bytes()
    cold = counter.since(mark)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        # Mapped pages stay, whoever drops the caches of this machine meanwhile.
        assert sum(view[:: mmap.PAGESIZE]) > 0
        mark = counter.mark()
        path.read_bytes()
        warm = counter.since(mark)
    assert cold.device == pytest.approx(SIZE, rel=0.02)
    assert warm.device == 0


def test_mapped_files_count_for_the_device_alone(path: Path) -> None:
    """As the record says: a map is no read call."""
    if file_system(path) in ("tmpfs", "ramfs"):
        pytest.skip("the temporary folder's files live in memory")
    counter = KernelCounter()
    evict([path])
    mark = counter.mark()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        assert sum(view[:: mmap.PAGESIZE]) > 0
    found = counter.since(mark)
    assert found.asked == 0
    assert found.device == pytest.approx(SIZE, rel=0.02)


def test_children_count_while_they_live_and_after(path: Path) -> None:
    """A child that came after the mark is counted, once, before and after its end; so is one in between unseen."""
    counter = KernelCounter()
    mark = counter.mark()
    with reading(CHILD + WAIT, str(path)) as process:
        alive = counter.since(mark).asked
        between = counter.mark()
        assert SIZE <= alive < SIZE + START
        process.communicate()
    assert SIZE <= counter.since(mark).asked < SIZE + START
    assert counter.since(between).asked < START
    with reading(CHILD, str(path)):
        pass
    assert SIZE <= counter.since(between).asked < SIZE + START


def test_grandchildren_count(path: Path) -> None:
    """A process that a child started, while both live and when both have ended."""
    program = (
        "import subprocess, sys; "
        f"subprocess.run([sys.executable, '-S', '-E', '-c', {CHILD + WAIT!r}, sys.argv[1]], check=True)"
    )
    counter = KernelCounter()
    mark = counter.mark()
    with reading(program, str(path)) as process:
        assert SIZE <= counter.since(mark).asked < SIZE + 10 * START
        process.communicate()
    assert SIZE <= counter.since(mark).asked < SIZE + 10 * START


def test_an_orphan_that_was_seen_is_followed(path: Path) -> None:
    """A process that outlives its parent counts on when it was seen before; one file was read on each side."""
    orphan = CHILD + "; sys.stdin.readline(); open(sys.argv[1], 'rb', buffering=0).read(); print('again', flush=True)"
    program = (
        "import signal, subprocess, sys; "
        f"subprocess.Popen([sys.executable, '-S', '-E', '-c', {orphan + WAIT!r}, sys.argv[1]]); "
        "signal.pause()"  # the input is the orphan's: who of two reads a line is a race
    )
    counter = KernelCounter()
    with reading(program, str(path)) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        mark = counter.mark()
        process.kill()
        assert process.wait() == -signal.SIGKILL
        process.stdin.write("on\n")
        process.stdin.flush()
        assert process.stdout.readline() == "again\n"
        assert SIZE <= counter.since(mark).asked < SIZE + START
        process.stdin.close()
        assert process.stdout.read() == ""


def test_processor_time_is_that_of_all(path: Path) -> None:
    """A child's loop counts, to a clock tick, as the child itself measures it."""
    del path
    program = "import sys, time\nwhile time.process_time() < 0.3: pass\nprint('read', flush=True); sys.stdin.read()"
    counter = KernelCounter()
    mark = counter.mark()
    with reading(program) as process:
        assert counter.since(mark).cpu >= 0.28
        process.communicate()
    assert 0.28 <= counter.since(mark).cpu < 3


def test_memory_is_that_of_all() -> None:
    """The peak keeps what a child had at a mark; shared memory is what is mapped now."""
    program = (
        "import mmap, sys; own = b'x' * (64 << 20); shared = mmap.mmap(-1, 32 << 20); shared.write(own[:32 << 20]); "
        "print('read', flush=True); sys.stdin.read()"
    )
    counter = KernelCounter()
    before = counter.memory()
    with reading(program) as process:
        during = counter.memory()
        process.communicate()
    after = counter.memory()
    assert during.peak - before.peak >= 96 << 20
    assert after.peak >= during.peak
    assert during.shared - before.shared == pytest.approx(32 << 20, rel=0.1)
    assert after.shared - before.shared < 1 << 20


def test_a_number_that_was_used_again_is_another_process() -> None:
    """A root that has ended is not found by its number alone."""

    def read(path: str) -> str | None:
        try:
            return Path(path).read_text()
        except OSError:
            return None

    status = status_of(os.getpid(), read)
    assert status is not None
    assert next(found.process.pid for found in family([status.process], read)) == os.getpid()
    other = type(status.process)(os.getpid(), status.process.start + 1)
    assert family([other], read) == []
    assert status_of(2**22 + 1, read) is None
