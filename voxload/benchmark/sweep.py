"""Sweep: which settings are tried, as a workload and a data set each; pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from voxload.benchmark.codec import Codec
from voxload.benchmark.dataset_plan import DatasetPlan
from voxload.benchmark.workload import Workload
from voxload.errors import UsageError

Spatial = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Setting:
    """One point of a sweep; what is None is as it was."""

    threads: int | None = None
    """Threads of each rank."""
    spatial: Spatial | None = None
    """Blocks along (d, h, w)."""
    chunks: Spatial | None = None
    """Extents (d, h, w) of a chunk; the data set is generated anew."""
    codec: str | None = None
    """Codec; the data set is generated anew."""

    def __str__(self) -> str:
        parts = (
            ("", self.threads, " threads"),
            ("grid ", self.spatial, ""),
            ("chunks ", self.chunks, ""),
            ("", self.codec, ""),
        )
        named = [f"{before}{_text(value)}{after}" for before, value, after in parts if value is not None]
        return ", ".join(named) or "as it is"

    def value(self, factor: str) -> int | Spatial | str | None:
        """Return this point's value of one of `Factors.varied`."""
        found: int | Spatial | str | None = getattr(self, factor)
        return found

    @property
    def is_stored_anew(self) -> bool:
        """Whether it needs a data set of its own."""
        return self.chunks is not None or self.codec is not None


@dataclass(frozen=True, slots=True)
class Factors:
    """What varies: every value of each with every value of the others."""

    threads: tuple[int, ...] = ()
    spatial: tuple[Spatial, ...] = ()
    chunks: tuple[Spatial, ...] = ()
    codec: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.varied:
            raise UsageError("sweep", found="one value of everything", expected="two values of something or more")

    @property
    def varied(self) -> tuple[str, ...]:
        """Names of the factors that have several values."""
        return tuple(name for name in self.__dataclass_fields__ if len(getattr(self, name)) > 1)

    def settings(self) -> Iterator[Setting]:
        """Yield every point."""
        columns = (getattr(self, name) or (None,) for name in self.__dataclass_fields__)
        for values in itertools.product(*columns):
            yield Setting(*values)


def applied(setting: Setting, workload: Workload) -> Workload:
    """Return a workload with the threads and the grid of a point."""
    supply, share = workload.supply, workload.share
    if setting.threads is not None:
        supply = replace(supply, threads=setting.threads)
    if setting.spatial is not None:
        share = replace(share, spatial=setting.spatial)
    return replace(workload, supply=supply, share=share)


def stored(setting: Setting, plan: DatasetPlan) -> DatasetPlan:
    """Return a data set with the chunks and the codec of a point, without shards: these are not swept.

    Raises UsageError when the format has none of them.
    """
    storage = plan.storage
    if setting.chunks is not None:
        extents = tuple(min(pair) for pair in zip(setting.chunks, plan.spatial, strict=True))
        storage = replace(storage, chunks=(plan.shape[0], extents[0], extents[1], extents[2]), shards=None)
    if setting.codec is not None:
        storage = replace(storage, codec=Codec(setting.codec))
    return replace(plan, storage=storage)


def processes(setting: Setting, workload: Workload, asked: int) -> int:
    """Return how many processes a point runs: as many as asked, or as many as its grid has blocks."""
    return asked or prod(setting.spatial or workload.share.spatial)


def name(setting: Setting) -> str:
    """Return a name that files can have."""
    kept = (character if character.isalnum() else "-" for character in str(setting))
    return "-".join(part for part in "".join(kept).split("-") if part)


def _text(value: int | str | Sequence[int]) -> str:
    return str(value) if isinstance(value, int | str) else "x".join(map(str, value))
