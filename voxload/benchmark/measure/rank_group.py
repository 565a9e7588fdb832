"""Meeting: what the ranks of a benchmark run tell each other, whatever launched them.

Ranks meet at a store of torch's (TCPStore), beside any loader's traffic, and not through torch.distributed itself: of a
sample group only some ranks may run, and then torch.distributed must not pretend that these are the whole job.
Whoever reaches the store can write into it: what ranks say is JSON, and looked at before it is believed.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch.distributed

from voxload.errors import DataError, InternalError
from voxload.grid import launched_as
from voxload.launch.rendezvous import store_over_mpi
from voxload.launch.wire import LONGEST, decode, encode

T = TypeVar("T")

dist: Any = torch.distributed
"""Stores are public there, and torch does not say so to type checkers."""

TIMEOUT = timedelta(minutes=30)
"""How long a rank waits for the others: one may read an epoch alone, from a slow storage."""
_PIECE = 2**22
"""Bytes of a value in the store: torch's takes 8 MiB at most."""
_COUNTS = {b"%d" % count: count for count in range(1, LONGEST // _PIECE + 1)}
"""Numbers of pieces, as they are written."""
_TORCHRUN = ("MASTER_ADDR", "MASTER_PORT")


class RankGroup:
    """Ranks that exchange plain values; every rank calls each method as often as the others. Used by one thread.

    Parameters
    ----------
    store
        Where they meet, one of torch's; None for a rank that is alone.
    rank, size
        This rank's number, and how many there are.
    """

    def __init__(self, store: Any, *, rank: int, size: int) -> None:
        self.store = store
        self.rank, self.size = rank, size
        self._turn = 0
        self._pieces = deque[int]()

    def gather(self, mine: T, kind: Any) -> list[T]:
        """Return what every rank gave, by rank.

        Parameters
        ----------
        mine
            A value that `voxload.launch.wire` knows.
        kind
            The type that every rank's must have.

        Raises
        ------
        InternalError
            When a rank does not come within `TIMEOUT`, or its value is of another kind.
        """
        if self.store is None:
            return [mine]
        self._turn += 1
        try:
            self._say(encode(mine))
            said = [b"" if rank == self.rank else self._hear(rank) for rank in range(self.size)]
            self._forget()
        except InternalError:
            raise
        except RuntimeError as error:
            raise InternalError(
                f"rank {self.rank} of {self.size}",
                found=f"a rank that does not answer: {str(error).splitlines()[0]}",
                remedy="see what the rank that ended has written",
            ) from error
        return [mine if rank == self.rank else _heard(rank, data, kind) for rank, data in enumerate(said)]

    def first(self, mine: T, kind: Any) -> T:
        """Return what rank 0 gave, of this kind."""
        found: T | None = self.gather(mine if self.rank == 0 else None, kind | None)[0]
        return cast("T", found)

    def wait(self) -> None:
        """Wait until all ranks are here."""
        self.gather(None, None)

    def _say(self, data: bytes) -> None:
        """Put what this rank says into the store: the number of its pieces, and the first; the others before it."""
        pieces = [data[start : start + _PIECE] for start in range(0, len(data), _PIECE)]
        for place, piece in enumerate(pieces[1:], 1):
            self.store.set(f"{self._turn}/{self.rank}/{place}", piece)
        self.store.set(f"{self._turn}/{self.rank}", b"%d %b" % (len(pieces), pieces[0]))
        self._pieces.append(len(pieces))

    def _hear(self, rank: int) -> bytes:
        """Return what a rank put there."""
        key = f"{self._turn}/{rank}"
        count, _, first = bytes(self.store.get(key)).partition(b" ")
        if count not in _COUNTS:
            raise _odd(rank, f"{count[:20]!r} pieces, expected 1 to {len(_COUNTS)}")
        others = [bytes(self.store.get(f"{key}/{place}")) for place in range(1, _COUNTS[count])]
        return b"".join([first, *others])

    def _forget(self) -> None:
        """Remove what this rank said a turn ago: whoever said something in this turn has read it."""
        if self._turn > 1:
            earlier = f"{self._turn - 1}/{self.rank}"
            for place in range(1, self._pieces.popleft()):
                self.store.delete_key(f"{earlier}/{place}")
            self.store.delete_key(earlier)


@contextmanager
def rank_group(environ: Mapping[str, str] | None = None) -> Iterator[RankGroup]:
    """Open the meeting of the ranks that a launcher started: torchrun, mpiexec or srun; of one process without.

    Raises
    ------
    UsageError
        When the launcher's variables are incomplete, or ranks of mpiexec or srun cannot find each other.
    """
    known = os.environ if environ is None else environ
    rank, size = launched_as(known)
    if size == 1:
        yield RankGroup(None, rank=0, size=1)
        return
    store = (
        _at_master(rank, size)
        if all(name in known for name in _TORCHRUN)
        else store_over_mpi(rank, size, timeout=TIMEOUT)
    )
    joined = RankGroup(dist.PrefixStore("voxload.benchmark", store), rank=rank, size=size)
    yield joined
    joined.wait()  # who made the store must not leave before the others have read it


@contextmanager
def as_torch_job(shared: RankGroup, *, is_whole: bool) -> Iterator[None]:
    """Let torch.distributed know the job, as training would, where all its ranks run: loaders compare and share by it.

    Nothing is done for a rank that is alone, or when only some ranks of the job run.
    """
    if shared.store is None or not is_whole:
        yield
        return
    store = dist.PrefixStore("voxload.benchmark.world", shared.store)
    dist.init_process_group("gloo", store=store, rank=shared.rank, world_size=shared.size, timeout=TIMEOUT)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _at_master(rank: int, size: int) -> Any:
    """Return the store at MASTER_ADDR that torchrun keeps, or that rank 0 opens."""
    store, found_rank, found_size = next(dist.rendezvous("env://", rank, size, timeout=TIMEOUT))
    if (found_rank, found_size) != (rank, size):
        raise InternalError("rendezvous", found=f"rank {found_rank} of {found_size}", expected=f"{rank} of {size}")
    store.set_timeout(TIMEOUT)
    return store


def _heard(rank: int, data: bytes, kind: Any) -> Any:
    """Return what a rank said; raises InternalError, naming it, where it is of another kind."""
    try:
        return decode(data, kind)
    except DataError as error:
        raise _odd(rank, str(error)) from error


def _odd(rank: int, found: str) -> InternalError:
    return InternalError(
        f"what rank {rank} said",
        found=found,
        remedy="run one voxload on all ranks, and let nobody else reach the port at which they meet",
    )
