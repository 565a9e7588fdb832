"""Served blocks: units that come from the node's service, and the orders that it is told.

Rules of this file:

1. What does not come from the service is read from the storage, as without it: the stream is the same.
2. A block's key is made here, from what is stored as this process sees it: what the service has is taken only where it
   is of that generation.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from voxload.data.dataset import VolumeDataset
from voxload.data.known_samples import reads_as
from voxload.data.units.keyed import KeyedUnits
from voxload.data.units.unit import Generations, Unit
from voxload.errors import DataError, InternalError, NotFoundError, StorageError, UsageError
from voxload.loader.cache import Cache
from voxload.loader.caching.blocks import DatasetBlocks
from voxload.loader.caching.kept import Kept
from voxload.loader.caching.prefetched import Runner
from voxload.loader.caching.units import Units
from voxload.prefetch.events import SourceKind
from voxload.prefetch.execution.resources import Filling, StorageRead
from voxload.prefetch.line import Ints
from voxload.prefetch.placement import RankPlan
from voxload.readers.protocol import ReadCost, Volume
from voxload.serve.client import ServiceClient
from voxload.serve.place import service_path
from voxload.serve.protocol.blocktable import ServedBlock, unit_of


class FieldUnits:
    """Each field of each unit by itself, numbered ``unit * fields + place``; see StoredUnits. Nothing reads them."""

    def __init__(self, units: Units) -> None:
        self._units = units
        self.fields = len(units.data.field_names)

    def block(self, number: int) -> ServedBlock:
        """Return what the service is told of one."""
        number, place = divmod(number, self.fields)
        unit = self._units.unit(number)
        return ServedBlock(unit.locations[place], unit.box, unit.boundary, unit.missing, unit.layout[place])

    def unit(self, number: int) -> Unit:
        """See StoredUnits."""
        return unit_of(self.block(number))

    def read_into(self, number: int, out: Sequence[Volume]) -> ReadCost:
        """See StoredUnits."""
        raise InternalError(f"field {number}", found=f"a read into {len(out)} arrays", expected="a read of its unit")

    def generations(self, number: int) -> Generations:
        """See StoredUnits."""
        number, place = divmod(number, self.fields)
        return (self._units.generations(number)[place],)


class ServedBlocks(DatasetBlocks):
    """Units that are asked of the service before they are read; see DatasetBlocks.

    Parameters
    ----------
    kept
        What a cache keeps.
    cache
        Which service.

    Raises
    ------
    UsageError
        Where the data set reads in a way of its own, which a service could not.
    NotFoundError
        Where the service that is named is not there; other errors as ServiceClient raises. With ``"auto"`` a warning
        says that, and what is wrong.
    """

    def __init__(self, kept: Kept, cache: Cache) -> None:
        super().__init__(kept.units, kept.items, outlives=True)
        _check(kept.units.data)
        self._fields = FieldUnits(kept.units)
        self._named = KeyedUnits(self._fields, outlives=True)
        self.client: ServiceClient | None = None
        path = service_path(cache.service)
        try:
            self.client = ServiceClient(path, self._fields.block, name=Path.cwd().name)
        except (NotFoundError, StorageError, DataError) as error:
            if cache.service != "auto":
                raise
            found = f"no service listens at {path}" if isinstance(error, NotFoundError) else str(error)
            warnings.warn(
                f"{found}: blocks are read from the storage in every epoch; start one by voxload serve, or leave out "
                "the cache",
                RuntimeWarning,
                stacklevel=2,
            )

    def numbers(self, units: Ints) -> Ints:
        """Return the numbers of what units are to the service, one after the other."""
        counts = [len(self.units.unit(unit).fields) for unit in units.tolist()]
        starts = np.repeat(units * self._fields.fields, counts)
        found: Ints = starts + np.concatenate([np.zeros(0, np.int64), *(np.arange(count) for count in counts)])
        return found

    def read(self, number: int, out: Sequence[Volume]) -> StorageRead:
        """Fill one array for each field; see DatasetBlocks."""
        if self.client is None:
            return super().read(number, out)
        is_hit = False
        try:
            is_hit = self._fetched(self.client, number, out)
            if is_hit:
                return StorageRead(ReadCost(), is_sure=True, source=SourceKind.SERVICE)
            return super().read(number, out)
        finally:
            for place, volume in enumerate(out):
                self.client.used(number * self._fields.fields + place, nbytes=volume.nbytes if is_hit else 0)

    def _fetched(self, client: ServiceClient, number: int, out: Sequence[Volume]) -> bool:
        first = number * self._fields.fields
        for place, volume in enumerate(out):
            if not self._named.is_lasting(first + place):
                return False
            if not client.fetch(first + place, self._named.keys(first + place)[0], volume):
                self._named.forget(first + place)  # it may have been written anew
                return False
        return True

    def announced(self, runner: Runner) -> Runner:
        """Return what carries out plans as `runner` does, and tells the service of them, where there is one."""
        return runner if self.client is None else AnnouncedPlans(runner, self.client, self.numbers)

    def close(self) -> None:
        """Leave the service."""
        if self.client is not None:
            self.client.close()


class AnnouncedPlans:
    """An executor whose plans a service is told of, step by step; see Executor, which it takes the place of.

    Used by one thread.
    """

    def __init__(self, runner: Runner, client: ServiceClient, numbers: Callable[[Ints], Ints]) -> None:
        self._runner, self._client, self._numbers = runner, client, numbers
        self._ends: dict[int, int] = {}  # place behind each step that was not taken
        self._end = self._passed = 0

    def extend(self, plan: RankPlan) -> None:
        """See Executor."""
        begin, found = self._end, []
        for step, row in enumerate(plan.samples, plan.first_step):
            numbers = self._numbers(row[row >= 0])
            found.append(numbers)
            self._end += len(numbers)
            self._ends[step] = self._end
        self._client.foresee(begin, np.concatenate([np.zeros(0, np.int64), *found]))
        self._runner.extend(plan)

    def cut(self, step: int) -> None:
        """See Executor."""
        later = [one for one in self._ends if one >= step]  # steps are in order
        for one in later:
            del self._ends[one]
        if later:
            self._end = next(reversed(self._ends.values()), self._passed)
            self._client.foresee(self._end, np.zeros(0, np.int64))
        self._runner.cut(step)

    def take(self, step: int, timeout: float | None = None) -> Filling:
        """See Executor."""
        begin = time.perf_counter()
        found = self._runner.take(step, timeout)  # of one that failed is heard with the next
        self._client.waited(time.perf_counter() - begin)
        while self._ends and (first := next(iter(self._ends))) <= step:
            self._passed = self._ends.pop(first)
        self._client.reached(self._passed)
        return found

    def is_ready(self, step: int) -> bool:
        """See Executor."""
        return self._runner.is_ready(step)

    def close(self) -> None:
        """See Executor."""
        self._runner.close()


def _check(data: VolumeDataset) -> None:
    if not reads_as(type(data), VolumeDataset):
        raise UsageError(
            f"service for a {type(data).__name__}",
            found="a read_into, layout or read_targets of its own",
            expected="VolumeDataset's own, for the service reads what is stored",
            remedy="give the loader memory of its own, or leave out the methods",
        )
    if data.coarse:
        raise UsageError(
            "service for fields on coarser grids",
            found=f"fields {list(data.field_names)} on several grids",
            expected="fields on one grid",
            remedy="give the loader memory of its own",
        )
