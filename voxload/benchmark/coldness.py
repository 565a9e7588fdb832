"""Coldness: making the page cache forget a data set, and seeing that it did.

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
does this; `Hog` and `set_direct_reads` are for whoever calls. Pages that a process has mapped stay: this one lets go of
its maps, others must before, with `voxload.benchmark.mappings.let_go`.
"""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from voxload.benchmark.datafiles import DataFiles
from voxload.benchmark.document import Cold
from voxload.benchmark.dropping import drop_caches, may_drop
from voxload.benchmark.filesystem import cache_note, file_system, keeps_apart
from voxload.benchmark.mappings import let_go
from voxload.benchmark.pagecache import forget, resident
from voxload.benchmark.workload import NEVER, Coldness
from voxload.errors import StorageError, UsageError
from voxload.readers.storage.file import reads_directly
from voxload.units import format_bytes

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
        let_go(data.files)
    for rung in rungs:
        try:
            _RUNGS[rung](data)
        except StorageError as error:
            if seen.used == NONE:  # it was the first one: named by the caller, or one that everybody may
                raise
            seen = seen.with_note(str(error))
            continue
        seen = replace(seen, used=rung, share=resident(data.files))
        if seen.share <= WARM:
            break
    return seen if rungs else replace(seen, share=resident(data.files))


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
    forget(data.files)


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
    forget(data.files)


_RUNGS: dict[str, Callable[[DataFiles], None]] = {
    FADVISE: _advise,
    DROP_CACHES: _drop,
    DIRECT: _read_past,
    HOG: _advise,  # held memory alone leaves pages that were used twice
}
