"""Coldness: the page cache of each node made to forget a data set before epochs, and seen to have done so.

===============  ====================================================================================================
rung             what it does
===============  ====================================================================================================
``fadvise``      asks the system to drop the pages of each file; needs no rights
``drop_caches``  drops all of the node's caches; as root or by ``sudo -n``
``direct``       the first, and the loader reads past the page cache (O_DIRECT), which its process has been told
``hog``          the first, and memory is held meanwhile, so that the page cache has no room for later epochs
``none``         nothing; looks only
``auto``         the first; where more than 1 % is left, the second, if permitted
===============  ====================================================================================================

Whatever was done, the share of the data set that is still in memory is looked at and said. One process of each node
does this; `HeldMemory` and `set_direct_reads` are for whoever calls. Pages that a process has mapped stay: this one
lets go of its maps, others must before, with `voxload.benchmark.cold.coldness.drop_mapped_pages`.
"""

from __future__ import annotations

import ctypes
import errno
import math
import mmap
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from voxload.benchmark.cold.datafiles import DataFiles
from voxload.benchmark.cold.node_memory import HeldMemory
from voxload.benchmark.cold.pagecache import cache_note, evict, file_system, keeps_apart, resident_share
from voxload.benchmark.measure.document import Cold
from voxload.benchmark.measure.rank_group import RankGroup
from voxload.benchmark.workload.workload import EPOCH, NEVER, Coldness
from voxload.errors import StorageError, UsageError
from voxload.readers import forget_chunks, set_direct_reads
from voxload.readers.storage.file import reads_directly
from voxload.units import format_bytes

_libc = ctypes.CDLL(None)
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
Identity = tuple[int, int]
"""Device and number of a file."""


def drop_mapped_pages(files: Iterable[str | os.PathLike[str]]) -> None:
    """Let this process's shared maps of `files` let go of their pages (madvise(2), MADV_DONTNEED).

    The maps stay valid: what is touched next is read again. To be called in every process that maps the files, before
    their pages are dropped; locked pages stay. Safe while other threads read.
    """
    mapped = list(_mapped())
    if not mapped:
        return
    wanted = {identity for file in files if (identity := _identity(file)) is not None}
    for start, stop, identity in mapped:
        if identity in wanted:
            _libc.madvise(start, stop - start, mmap.MADV_DONTNEED)


def _mapped() -> Iterator[tuple[int, int, Identity]]:
    """Yield the addresses and the file of each shared map of this process; private ones may hold what no file has."""
    for line in Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines():
        words = line.split(maxsplit=5)
        if len(words) < 6 or words[1][3] != "s":
            continue
        identity = _identity(words[5])
        if identity is not None:
            start, stop = (int(word, 16) for word in words[0].split("-"))
            yield start, stop, identity


def _identity(file: str | os.PathLike[str]) -> Identity | None:
    """Return what names a file by whatever path; None where there is none."""
    try:
        status = os.stat(file)  # noqa: PTH116 - strings: there may be many
    except OSError:
        return None
    return status.st_dev, status.st_ino


_KNOB = Path("/proc/sys/vm/drop_caches")
_ALL = "3\n"
"""Pages, and entries of directories and inodes: a cold run looks these up anew, too."""
_TIMEOUT = 120
"""Seconds: dropping the caches of a large node takes a while."""


def may_drop() -> bool:
    """Tell whether this process may drop them: by itself, or through ``sudo -n``."""
    if os.access(_KNOB, os.W_OK, effective_ids=True):
        return True
    command = _sudo()
    return command is not None and _run([*command[:2], "-l", *command[2:]], "") == ""


def drop_caches() -> None:
    """Write what is dirty to storage, then drop the caches of the whole node.

    Raises StorageError when the system refuses.
    """
    os.sync()
    failure = "not permitted, and there is no sudo"
    if os.access(_KNOB, os.W_OK, effective_ids=True):
        failure = _write()
    elif (command := _sudo()) is not None:
        failure = _run(command, _ALL)
    if failure:
        raise StorageError(f"{_KNOB}", found=failure, remedy="run as root, allow it to sudo, or choose fadvise")


def _write() -> str:
    """Return what went wrong; empty for nothing."""
    try:
        _KNOB.write_text(_ALL)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _sudo() -> list[str] | None:
    """Return the command that writes what it reads; None without sudo."""
    sudo, tee = shutil.which("sudo"), shutil.which("tee")
    return [sudo, "-n", tee, f"{_KNOB}"] if sudo and tee else None


def _run(command: list[str], text: str) -> str:
    """Return what went wrong; empty for nothing."""
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=_TIMEOUT, check=False, env=_PLAIN
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else done.stderr.strip() or f"exit status {done.returncode}"


_PLAIN = {"PATH": os.defpath, "LC_ALL": "C"}
"""What a command needs to know."""


AUTO, FADVISE, DROP_CACHES, DIRECT, HOG, NONE = "auto", "fadvise", "drop_caches", "direct", "hog", "none"
METHODS = (AUTO, FADVISE, DROP_CACHES, DIRECT, HOG, NONE)
WARM = 0.01
"""Share of a data set's pages above which it counts as warm."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the choice depends on."""

    may_drop: bool
    """Whether this process may drop the node's caches."""
    is_direct: bool
    """Whether this process reads past the page cache."""
    hog: int
    """Bytes of memory that are held."""


def choose(method: str, facts: Facts) -> tuple[str, ...]:
    """Return the rungs to climb, in order, until the data set is cold; pure.

    Raises UsageError when the method is unknown, or cannot do what it says here.
    """
    if method == AUTO:
        return (FADVISE, DROP_CACHES) if facts.may_drop else (FADVISE,)
    if method not in METHODS:
        raise UsageError("method of making cold", found=repr(method), expected=f"one of {', '.join(METHODS)}")
    if method == DROP_CACHES and not facts.may_drop:
        raise UsageError(
            "drop_caches", found="no permission", expected="root, or sudo without a password", remedy="say auto"
        )
    if method == DIRECT and not facts.is_direct:
        raise UsageError(
            "direct reads",
            found="a loader that reads through the page cache",
            expected="voxload's, with voxload.readers.set_direct_reads(is_direct=True)",
            remedy="choose the loader voxload, or another method",
        )
    if method == HOG and not facts.hog:
        raise UsageError(
            "holding memory",
            found="0 bytes",
            expected="how much to hold",
            remedy="name a size, on the command line --hog 64GiB",
        )
    return () if method == NONE else (method,)


def make_cold(data: DataFiles, coldness: Coldness) -> Cold:
    """Do what `coldness` asks for and tell what is left; once on each node, while none of its ranks reads.

    Nothing is done where it is to happen never; what is in memory is looked at all the same.

    Raises
    ------
    UsageError
        When the method is unknown or cannot do what it says here, direct reads on such a file system included.
    NotFoundError
        When a file is not there.
    StorageError
        When one cannot be opened, or the system refuses the method that was named; ``auto`` says so instead.
    """
    method = NONE if coldness.when == NEVER else coldness.method
    facts = Facts(method == DROP_CACHES and may_drop(), reads_directly(), coldness.hog)
    rungs = choose(method, facts)
    if not data.files:
        return Cold(NONE, math.nan, is_verified=False, text=f"nothing to drop: {_remote(data)}")
    seen = _climb(rungs, data, _Seen(NONE))
    if method == AUTO and not seen.share <= WARM:
        # Asked no earlier: where sudo may not, it tells the administrators that someone tried.
        further = choose(AUTO, replace(facts, may_drop=may_drop()))[1:]
        seen = _climb(further, data, seen) if further else seen.with_note("drop_caches is not permitted")
    return _cold(seen, data, facts)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was done so far, and what was left then."""

    used: str
    """The last rung."""
    share: float = math.nan
    notes: tuple[str, ...] = ()
    """Why the system refused something, or why it was not asked."""

    def with_note(self, note: str) -> _Seen:
        """Return the same with one more note."""
        return replace(self, notes=(*self.notes, note))


def _climb(rungs: tuple[str, ...], data: DataFiles, seen: _Seen) -> _Seen:
    """Do what each rung is until the data set is cold; without any, look only."""
    if rungs:
        drop_mapped_pages(data.files)
    for rung in rungs:
        try:
            _RUNGS[rung](data)
        except StorageError as error:
            if seen.used == NONE:  # it was the first one: named by the caller, or one that everybody may
                raise
            seen = seen.with_note(str(error))
            continue
        seen = replace(seen, used=rung, share=resident_share(data.files))
        if seen.share <= WARM:
            break
    return seen if rungs else replace(seen, share=resident_share(data.files))


def _cold(seen: _Seen, data: DataFiles, facts: Facts) -> Cold:
    """Put it into words; all files are taken to be where the first one is."""
    kind = file_system(data.files[0])
    is_verified = not math.isnan(seen.share) and not keeps_apart(kind)
    notes = [*seen.notes, _held(facts), cache_note(kind), _remote(data)]
    text = "; ".join([_told(seen, is_verified=is_verified), *(note for note in notes if note)])
    return Cold(seen.used, seen.share, is_verified=is_verified, text=text)


def _told(seen: _Seen, *, is_verified: bool) -> str:
    """Return how cold the data set is, for people."""
    done = "" if seen.used == NONE else f" after {seen.used}"
    if math.isnan(seen.share):
        return f"UNVERIFIED{done}: the system does not say how much of the data set is in memory"
    held = f"{seen.share:.1%} of the data set in memory{done}".replace("%", " %")
    if seen.share <= WARM:
        return f"cold, verified: {held}" if is_verified else f"UNVERIFIED: {held}"
    if seen.used == DIRECT:
        return f"direct reads, past the page cache: {held}"
    return f"WARM: {held}" + ("; pages that a process has mapped cannot be dropped" if done else "")


def _held(facts: Facts) -> str:
    return f"{format_bytes(facts.hog)} of memory held" if facts.hog else ""


def _remote(data: DataFiles) -> str:
    if not data.remote:
        return ""
    return f"{data.remote} volumes are remote: this node's page cache has nothing of them, their servers' may"


def _advise(data: DataFiles) -> None:
    evict(data.files)


def _drop(data: DataFiles) -> None:
    del data  # everybody's are dropped
    drop_caches()


def _read_past(data: DataFiles) -> None:
    """See that the file system has direct reads, and forget what there is, for metadata are read as always."""
    try:
        os.close(os.open(data.files[0], os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT))
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise UsageError(
            data.files[0], found="a file system without direct reads", remedy="choose another method than direct"
        ) from error
    evict(data.files)


_RUNGS: dict[str, Callable[[DataFiles], None]] = {
    FADVISE: _advise,
    DROP_CACHES: _drop,
    DIRECT: _read_past,
    HOG: _advise,  # held memory alone leaves pages that were used twice
}


class Cooling:
    """Makes epochs begin cold; every rank makes one and calls it at the same points.

    Parameters
    ----------
    coldness
        What is asked for.
    files
        The data set's.
    shared
        The ranks.
    leads
        Whether this rank is the one of its node that does it.
    """

    def __init__(self, coldness: Coldness, files: DataFiles, shared: RankGroup, *, leads: bool) -> None:
        self._coldness, self._files = coldness, files
        self._shared, self._leads = shared, leads
        self.first: Cold | None = None
        """What was done and seen before the first epoch, on rank 0; None before it, and on ranks that lead no node."""

    def __call__(self, epoch: int) -> float:
        """Make ready for an epoch; return the share of the data set in memory, NaN where this rank does not look.

        Raises what `make_cold` raises; other ranks end then too, since this one no longer answers.
        """
        drop_mapped_pages(self._files.files)  # pages that a process maps are not dropped
        if epoch == 0:
            forget_chunks()  # of an earlier run of this process; between epochs they are the loader's merit
        self._shared.wait()  # nobody reads any more
        cold = None
        if self._leads and (epoch == 0 or self._coldness.when == EPOCH):
            cold = make_cold(self._files, self._coldness)
        self._shared.wait()
        self.first = self.first or cold
        return math.nan if cold is None else cold.resident


@contextmanager
def pressure(coldness: Coldness, *, leads: bool) -> Iterator[None]:
    """Hold memory and read past the page cache for as long as that is asked for.

    Raises UsageError when there is not as much memory.
    """
    is_direct = coldness.when != NEVER and coldness.method == DIRECT
    with HeldMemory(coldness.hog if leads else 0):
        if is_direct:
            set_direct_reads(is_direct=True)
        try:
            yield
        finally:
            if is_direct:
                set_direct_reads(is_direct=False)
