"""Workload: all that a benchmark run is told, as plain values that travel to its ranks as JSON; pure.

A workload is put together from parts, each with its own rules, rather than from one long list of options.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

from voxload.errors import DataError, UsageError
from voxload.files.regular import parse_json
from voxload.geometry import Boundary
from voxload.grid import spatial_counts
from voxload.prefetch import policies

SHUFFLED, SEQUENTIAL = "shuffled", "sequential"
ORDERS = (SHUFFLED, SEQUENTIAL)
"""Orders of an epoch's samples: drawn anew for each epoch from the seed, or as they are listed."""
NEVER, RUN, EPOCH = "never", "run", "epoch"
COLD = (NEVER, RUN, EPOCH)
"""When the page cache is emptied: not at all, before the first epoch, or before each."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Which volumes are read."""

    location: str
    """A catalogue, a folder that has one, a pattern, or a URL: what VolumeDataset takes."""
    dataset: str = ""
    """Dataset of the catalogue or of the files; empty for the only one."""
    axes: str = ""
    """Letters of the stored axes where files do not say so, such as ``CDHW``; empty for what they say."""
    allow_outside: bool = False
    """Whether the paths of a catalogue may lead out of its folder; see `voxload.catalog.table.Catalog`."""

    def __post_init__(self) -> None:
        if not self.location:
            raise UsageError("samples", found="no location", expected="a catalogue, a folder, a pattern or a URL")


@dataclass(frozen=True, slots=True)
class Share:
    """What each rank asks for, and in which order."""

    spatial: tuple[int, int, int] = (1, 1, 1)
    """Blocks of a sample along (d, h, w)."""
    ranks_of: int = 0
    """Ranks of the job that is benchmarked; 0 for those that run. Others of the same sample group may be absent."""
    halo: int = 0
    """Voxels around a block."""
    boundary: str = "zero"
    """What lies outside a sample: ``zero`` or ``periodic``."""
    batch_size: int = 1
    """Samples of a sample group's batch."""
    order: str = SHUFFLED
    """One of `ORDERS`."""
    seed: int = 0
    """Seed of the order."""

    def __post_init__(self) -> None:
        spatial_counts(self.spatial)
        Boundary.parse(self.boundary)
        _at_least("halo", self.halo, 0)
        _at_least("ranks", self.ranks_of, 0)
        _at_least("batch size", self.batch_size, 1)
        _one_of("order", self.order, ORDERS)


@dataclass(frozen=True, slots=True)
class Length:
    """How long it runs: whichever ends first."""

    epochs: int = 1
    """Passes over the samples."""
    steps: int = 0
    """Most steps of an epoch; 0 for all."""
    seconds: float = 0.0
    """Most seconds of a run, looked at between steps, by rank 0 for all; 0 for no limit."""
    warmup: int = 1
    """First steps of each epoch that utilisation leaves out; MLPerf Storage leaves out one."""

    def __post_init__(self) -> None:
        _at_least("epochs", self.epochs, 1)
        _at_least("steps", self.steps, 0)
        _at_least("seconds", self.seconds, 0)
        _at_least("warm-up steps", self.warmup, 0)


@dataclass(frozen=True, slots=True)
class Supply:
    """What loads."""

    loader: str = "voxload"
    """Name of a loader; see `voxload.benchmark.loaders`."""
    threads: int = 2
    """Threads or worker processes of each rank; 0 for none beside the consumer."""
    prefetch: int = 2
    """Batches ahead for each of them."""
    memory: int = 0
    """Bytes of each node's memory that keep blocks; of voxload and monai."""
    disk: str = ""
    """Folder on each node's disk that keeps blocks; empty for none; voxload's alone."""
    disk_bytes: int = 0
    """Bytes of it."""
    peers: str = "auto"
    """How blocks come from other ranks; see `voxload.Cache`."""
    clairvoyant: bool = True
    """Whether voxload's loader may use orders beyond the epoch at hand, to keep blocks and to read ahead of it; MLPerf
    Storage forbids it. See `Workload.looks_beyond`."""
    device: str = "cpu"
    """Where batches are delivered: ``cpu`` or ``cuda``."""
    policy: str = ""
    """Who keeps which block; see `voxload.Cache`. Empty for its default, and in results of older versions."""

    def __post_init__(self) -> None:
        _at_least("threads", self.threads, 0)
        _at_least("prefetch", self.prefetch, 1)
        _one_of("device", self.device, ("cpu", "cuda"))
        if self.policy:
            _one_of("policy", self.policy, policies.NAMES)
            if not self.keeps_blocks:
                raise UsageError(
                    f"policy {self.policy!r}",
                    found="no room for blocks",
                    expected="memory or a disk that keeps them",
                    remedy="give --memory, or --disk, or leave --policy out",
                )

    @property
    def keeps_blocks(self) -> bool:
        """Whether blocks are kept near."""
        return bool(self.memory or self.disk)


@dataclass(frozen=True, slots=True)
class Emulation:
    """The computing that is made believe after each batch."""

    kind: str = "none"
    """``none``, ``sleep``, ``spin`` (keeps a core busy) or ``gpu`` (a kernel)."""
    seconds: str = "0"
    """Of a step: a number, or a distribution such as ``normal:0.32,0.01``; see `durations`."""
    seed: int = 0
    """Seed of what is drawn; ranks draw alike, since they compute in step."""


@dataclass(frozen=True, slots=True)
class Coldness:
    """What is done so that storage is measured and not memory."""

    when: str = NEVER
    """One of `COLD`."""
    method: str = "auto"
    """A rung of the ladder; see `voxload.benchmark.cold.coldness`."""
    hog: int = 0
    """Bytes of memory that are held so that the page cache cannot have them; 0 for none."""

    def __post_init__(self) -> None:
        _one_of("cold", self.when, COLD)
        _at_least("memory to hold", self.hog, 0)


@dataclass(frozen=True, slots=True)
class Workload:
    """One benchmark run."""

    samples: Samples
    share: Share = field(default_factory=Share)
    length: Length = field(default_factory=Length)
    supply: Supply = field(default_factory=Supply)
    emulation: Emulation = field(default_factory=Emulation)
    coldness: Coldness = field(default_factory=Coldness)
    lockstep: bool = True
    """Whether ranks wait for each other after each step, as training does."""
    verify: bool = False
    """Whether each block is compared with the pattern that `bench generate` wrote; costs time, and is said so."""
    preset: str = ""
    """Name of the preset that it comes from."""
    scaled: tuple[str, ...] = ()
    """What was made smaller than the preset has it, a sentence each."""

    @property
    def looks_beyond(self) -> bool:
        """Whether voxload's loader uses the order of an epoch before that begins.

        Without tiers it does not where each epoch begins cold: what was read before would not come from the storage.
        """
        is_cold = self.coldness.when == EPOCH and not self.supply.keeps_blocks
        return self.supply.clairvoyant and self.length.epochs > 1 and not is_cold

    def to_json(self) -> str:
        """Return the workload as JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Workload:
        """Return the workload that `to_json` wrote; raises DataError on anything else."""
        try:
            return cls.from_dict(parse_json(text))
        except ValueError as error:
            raise DataError("workload", found=str(error), expected="JSON as Workload.to_json writes") from error

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Workload:
        """Return the workload that `dataclasses.asdict` took apart; raises DataError on anything else."""
        try:
            rest = dict(values)
            share = dict(rest.pop("share"))
            parts: dict[str, Any] = {
                "samples": Samples(**rest.pop("samples")),
                "share": Share(spatial=tuple(share.pop("spatial")), **share),
                "length": Length(**rest.pop("length")),
                "supply": Supply(**rest.pop("supply")),
                "emulation": Emulation(**rest.pop("emulation")),
                "coldness": Coldness(**rest.pop("coldness")),
                "scaled": tuple(rest.pop("scaled")),
            }
            return cls(**parts, **rest)
        except (TypeError, KeyError, AttributeError) as error:
            raise DataError("workload", found=str(error), expected="what dataclasses.asdict makes of one") from error


def _at_least(name: str, value: float, least: float) -> None:
    if value < least:
        raise UsageError(name, found=str(value), expected=f"{least} or more")


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UsageError(name, found=repr(value), expected=f"one of {', '.join(known)}")
