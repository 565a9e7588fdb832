"""Forecast: what a step takes in one setup, in time, memory and bytes; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from voxload.display.description import Described, Description
from voxload.display.grid_picture import counted, grid_picture
from voxload.display.table import Listing, joined
from voxload.errors import UsageError
from voxload.plan.costs.memory import MemoryPeak, memory_peak
from voxload.plan.costs.speeds import Fabric, Kernels
from voxload.plan.costs.timeline import StepTime, step_time
from voxload.plan.forecast.reading import DataSet, Reading, reading
from voxload.plan.forecast.setups import Setup
from voxload.plan.forecast.training import Training
from voxload.plan.platform.calibration import Company
from voxload.plan.platform.platform import Platform
from voxload.plan.trace.fully_sharded import fully_sharded
from voxload.plan.trace.module_shards import sharded_by_module
from voxload.plan.trace.operation import StepTrace, itemsize
from voxload.plan.trace.volume import VolumeTrace
from voxload.units import format_bytes

HOST_BATCHES, DEVICE_BATCHES = 3, 2
"""Batches of a rank that are there at once: one that is used, one ahead and, on the host, one that is read. On a
device a loader has no more unless told to keep some; on the host as many as `staging` has room for (`Plan.staging`)."""
GOALS = ("time", "cost", "ranks", "memory")
"""What a plan is to have least of."""


@dataclass(frozen=True, slots=True, repr=False)
class Forecast(Described):
    """What one setup takes."""

    setup: Setup
    time: StepTime
    """Of a step, without waiting for data."""
    memory: MemoryPeak
    limit: int
    """Bytes of memory that a rank has."""
    reading: Reading | None = None
    """What is read, where the data are known."""
    watts: float = 0.0
    """Of a rank; 0 where the machine does not say."""
    layers: Mapping[str, str] = field(default_factory=dict)
    """What layers use the axes of the grid for, as `voxload.engine.SplitPlan.of` takes it; those left out, space."""
    cuts: tuple[str, ...] = ()
    """Where the network is cut into stages, as `voxload.engine.pipeline_parts` takes it."""
    recompute: tuple[str, ...] = ()
    """Paths of modules that run again in the backward pass, as `voxload.plan.checkpoint_modules` takes them."""

    @property
    def step(self) -> float:
        """Seconds of a step, waiting for data included as far as that is known."""
        stall = self.reading.stall if self.reading is not None else None
        return self.time.total + (stall or 0.0)

    @property
    def fits(self) -> bool:
        """Whether a rank's memory suffices."""
        return self.memory.use.total <= self.limit

    @property
    def cost(self) -> float:
        """Rank seconds of a step."""
        return self.step * self.setup.ranks

    @property
    def joules(self) -> float:
        """Energy of a step; 0 where the machine says nothing of power."""
        return self.cost * self.watts

    @property
    def epoch(self) -> float | None:
        """Seconds of an epoch, where the data are known: steps that are not full count as full."""
        if self.reading is None:
            return None
        return self.step * -(-self.reading.samples // (self.setup.groups * self.setup.samples))

    def _described(self) -> Description:
        needed, step = self.memory.use.total, self.step
        memory = f"{format_bytes(needed)} of {format_bytes(self.limit)} a rank{'' if self.fits else ': does not fit'}"
        stall = None if self.reading is None else self.reading.stall
        names = ("forward", "backward", "update", "halos", "sums", "gradients", "waiting")
        seconds = {name: getattr(self.time, name) for name in names} | {"waiting for data": stall or 0.0}
        rows = tuple(
            (name, f"{value:.3g}", f"{value / step:.0%}" if step else "") for name, value in seconds.items() if value
        )
        facts = {
            "setup": f"{self.setup.describe()}: {self.setup.ranks} ranks, {self.setup.samples} samples a group",
            "step": f"{step:.3g} s",
            "epoch": "" if self.epoch is None else f"{self.epoch:.3g} s",
            "memory": memory,
            "energy of a step": f"{self.joules:.3g} J" if self.joules else "",
            "reading is bound by": "" if self.reading is None else self.reading.binds,
            "layers that use the grid otherwise": joined(f"{name}: {use}" for name, use in self.layers.items()),
            "cuts": joined(self.cuts),
            "modules that run again": joined(self.recompute),
        }
        parts = (self.setup.describe(), f"{self.setup.ranks} ranks", f"{step:.3g} s a step", memory)
        listing = Listing("A step", ("part", "seconds", "share"), rows)
        picture = grid_picture(counted(self.setup.spatial))
        return Description(type(self).__name__, parts, facts, (listing,), picture)


class Oracle:
    """Says what setups of one training take on one machine; used by one thread.

    Parameters
    ----------
    training
        What is trained.
    platform
        What it runs on.
    nodes
        How many there are; 0 for as many as ranks need.
    limit
        Bytes of memory of a rank; 0 for what its device has.
    trace
        Of a step on whole samples, where it is there already.
    """

    def __init__(
        self,
        training: Training,
        platform: Platform,
        *,
        nodes: int = 0,
        limit: int = 0,
        trace: VolumeTrace | None = None,
    ) -> None:
        self.training, self.platform = training, platform
        self._nodes, self._limit = nodes, limit
        self._trace = trace
        self._kept: int | None = None
        self._speeds: dict[tuple[int, bool, Company], tuple[Kernels, Fabric]] = {}

    def trace_of(self, setup: Setup) -> StepTrace:
        """Return the step of a rank in the middle."""
        if self._trace is None:
            self._trace = self.training.trace()
        return self._trace.on_blocks(setup.spatial, batch=setup.samples)

    def forecast(self, setup: Setup, trace: StepTrace | None = None) -> Forecast:
        """Return what a setup without stages takes; raises UsageError where the machine has no place for it.

        `trace` is the engine's own of such a rank, where it is there.
        """
        step = self.wrapped(setup, trace or self.trace_of(setup))
        kernels, fabric = self.speeds(setup)
        return Forecast(
            setup,
            step_time(step, kernels, fabric, setup.grid),
            memory_peak(step, replicas=setup.ranks, staging=self.staging_bytes(setup), device=self.platform.kind),
            self.limit(setup),
            watts=self.platform.device.watts,
        )

    def wrapped(self, setup: Setup, trace: StepTrace) -> StepTrace:
        """Return a step under what averages gradients, where that is not DDP, which leaves operations as they are."""
        ways = {"fsdp": fully_sharded, "fsdp-modules": sharded_by_module}
        way = ways.get(self.training.wrapper)
        return trace if way is None else way(trace, setup.ranks)

    def with_reading(self, forecast: Forecast, data: DataSet) -> Forecast:
        """Return a forecast with what is read of a data set; raises UsageError where samples are of another shape."""
        if data.shape != self.training.sample:
            raise UsageError(
                "--sample",
                found=f"{self.training.sample}",
                expected=f"{data.shape}, as the data are",
                remedy="leave it out",
            )
        found = reading(data, forecast.setup, self.platform.storage, forecast.time.total)
        return replace(forecast, reading=found)

    def limit(self, setup: Setup) -> int:
        """Return the bytes of memory that a rank of a setup has."""
        return self._limit or self.platform.memory(self.ranks_on_node(setup.ranks))

    def speeds(self, setup: Setup) -> tuple[Kernels, Fabric]:
        """Return how fast operations and messages of a setup are."""
        near = self.ranks_on_node(setup.ranks)
        key = near, near >= setup.ranks, setup.company
        if key not in self._speeds:
            self._speeds[key] = (
                self.platform.kernels(self.training.dtype, near, setup.company),
                self.platform.fabric(near, is_alone=near >= setup.ranks),
            )
        return self._speeds[key]

    def least_memory(self, setup: Setup) -> int:
        """Return bytes below which no rank of a setup stays: half of its share of what one rank keeps of a sample."""
        if self._kept is None:
            self._kept = memory_peak(self.trace_of(Setup((1, 1, 1), 1, 1))).use.kept
        return self._kept * setup.samples // (2 * prod(setup.spatial))

    def forecasts(self, setups: Iterable[Setup]) -> list[Forecast]:
        """Return what each setup takes that may fit; of none, that of the one that needs least."""
        given = list(setups)
        likely = [each for each in given if self.least_memory(each) <= self.limit(each)]
        return [self.forecast(each) for each in likely or sorted(given, key=self.least_memory)[:1]]

    def ranks_on_node(self, ranks: int) -> int:
        """Return how many of so many ranks share a node."""
        return -(-ranks // self._nodes) if self._nodes else min(ranks, self.platform.ranks_per_node)

    def slowdown(self, setup: Setup, working: int) -> float:
        """Return how many times as long operations of a setup take while so many of its ranks compute."""
        near = min(working, self.ranks_on_node(setup.ranks))
        return self.platform.slowdown(max(near, 1), setup.company)

    def staging_bytes(self, setup: Setup) -> int:
        """Return the bytes of a rank's blocks that are there at once."""
        return (HOST_BATCHES if self.platform.kind == "cpu" else DEVICE_BATCHES) * self.batch_bytes(setup)

    def batch_bytes(self, setup: Setup) -> int:
        """Return the bytes of a rank's blocks of a batch."""
        extents = (-(-extent // count) for extent, count in zip(self.training.shape, setup.spatial, strict=True))
        return setup.samples * self.training.sample[0] * prod(extents) * itemsize("float32")


def ranked(forecasts: Iterable[Forecast], goal: str = "time") -> list[Forecast]:
    """Return forecasts, those that fit and have least of what is to be least first; raises UsageError for no goal."""
    if goal not in GOALS:
        raise UsageError("--goal", found=repr(goal), expected=", ".join(GOALS))
    keys = {
        "time": lambda each: (each.step, each.setup.ranks),
        "cost": lambda each: (each.cost, each.step),
        "ranks": lambda each: (each.setup.ranks, each.step),
        "memory": lambda each: (each.memory.use.total, each.step),
    }
    return sorted(forecasts, key=lambda each: (not each.fits, *keys[goal](each)))


def pareto(forecasts: Sequence[Forecast]) -> list[Forecast]:
    """Return those of which no other is as good in ranks, time and memory, and better in one; fewest ranks first."""
    kept = [
        one
        for one in forecasts
        if one.fits and not any(_beats(other, one) for other in forecasts if other is not one and other.fits)
    ]
    return sorted(kept, key=lambda each: (each.setup.ranks, each.step))


def _beats(one: Forecast, other: Forecast) -> bool:
    mine, others = ((each.setup.ranks, each.step, each.memory.use.total) for each in (one, other))
    return mine != others and all(a <= b for a, b in zip(mine, others, strict=True))
