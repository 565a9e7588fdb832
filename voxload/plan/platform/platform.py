"""Platform: what a rank computes on, how ranks talk, and what they read from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from voxload.errors import UsageError
from voxload.plan.costs.kernels import measured
from voxload.plan.costs.speeds import Fabric, Kernels, Link, Roofline
from voxload.plan.platform.calibration import Calibration, Company
from voxload.plan.trace.operation import Phase
from voxload.prefetch.simulate import Machine

AUTOCAST = ("bfloat16", "float16")
"""Types that convolutions and products of matrices are cast to, and others are not."""


@dataclass(frozen=True, slots=True)
class Device:
    """What one rank computes on, by its published figures."""

    name: str
    memory: int
    """Bytes."""
    flops: Mapping[str, float]
    """Floating-point operations a second that convolutions reach, by type such as ``float32``; empty where operations
    were measured."""
    bandwidth: float
    """Bytes a second of its memory."""
    launch: float
    """Seconds of an operation however small it is."""
    watts: float
    """That it and its share of the node take while it trains; 0 where nobody said."""


@dataclass(frozen=True, slots=True)
class Platform:
    """A machine, as a plan needs to know it."""

    name: str
    source: str
    """Where the figures come from."""
    ranks_per_node: int
    device: Device
    within: Link
    """Between ranks of a node."""
    between: Link | None
    """Of a node to others: its ranks share it. None where nobody said, as of a single node that was measured."""
    storage: Machine | None
    """What ranks read from and keep blocks in; None where nothing is known of it."""
    calibration: Calibration | None
    """What was measured; None where figures were published."""

    @property
    def kind(self) -> str:
        """Type of the devices, such as ``cpu``; those of published figures are GPUs."""
        return self.calibration.device if self.calibration is not None else "cuda"

    def kernels(self, dtype: str, ranks: int, company: Company = Company.APART) -> Kernels:
        """Return how fast operations are.

        Parameters
        ----------
        dtype
            What is computed in.
        ranks
            On one node; more than were there when operations were measured share its cores.
        company
            What they have to do with each other.

        Raises
        ------
        UsageError
            When nothing is known of that type, or there are more ranks than devices.
        """
        found = self.calibration
        if found is None:
            self._check_room(ranks)
            usual = dtype if dtype not in AUTOCAST else "float32"  # what autocast leaves alone
            flops = {each: self._flops(each) for each in {usual, dtype}}
            return Roofline(flops.pop(usual), self.device.bandwidth, self.device.launch, flops)
        if dtype != "float32":
            raise UsageError(
                f"machine {self.name}", found=f"operations in float32, not {dtype}", expected="a measured type"
            )
        if found.device != "cpu":
            self._check_room(ranks)
        kernels = measured(found.kernels, dict(zip(Phase, found.overheads, strict=True)), found.device)
        kernels.slowdown = self.slowdown(ranks, company)
        return kernels

    def slowdown(self, ranks: int, company: Company = Company.APART) -> float:
        """Return how many times as long as they were measured to operations take where a node has so many ranks."""
        found = self.calibration
        if found is None:
            return 1.0
        shared = found.shared_by(ranks)
        # More ranks than cores share them: of another number than was measured, as many more or fewer do.
        crowd, measured_crowd = (max(1.0, count / found.ranks) for count in (ranks, shared.ranks))
        return shared.of(company) * crowd / measured_crowd

    def memory(self, ranks: int) -> int:
        """Return the bytes of memory that a rank has where a node has so many: on a host they share it."""
        found = self.calibration
        if found is None or found.device != "cpu":
            return self.device.memory
        return self.device.memory * found.ranks // max(found.ranks, ranks)

    def stand_in(self, ranks: int) -> int:
        """Return how many ranks were measured that stand in for so many; 0 where there is no need."""
        near = self.calibration.shared_by(ranks).ranks if self.calibration is not None else ranks
        return 0 if near == ranks else near

    def fabric(self, ranks: int, *, is_alone: bool) -> Fabric:
        """Return how fast messages are where a node has so many ranks.

        Raises UsageError where nodes are to talk, which `is_alone` denies, and nothing is known of how fast they do.
        """
        if self.between is None and not is_alone:
            raise UsageError(
                f"machine {self.name}",
                found="nothing about the network between nodes",
                expected="[links.between] with latency and bytes_per_second",
                remedy="put it into the machine's file, take fewer ranks, or say --nodes 1 for ranks that share cores",
            )
        between = self.between or self.within
        if self.calibration is None:
            return Fabric(ranks, self.within, between)
        shared = self.calibration.shared_by(ranks)
        within = Link(shared.latency, shared.seconds_per_byte)
        sums = Link(shared.sum_latency, shared.sum_seconds_per_byte)
        return Fabric(ranks, within, between, sums, shared.gradients, shared.jitter)

    def _flops(self, dtype: str) -> float:
        """Return the operations a second in a type; raises UsageError where nobody said."""
        if dtype not in self.device.flops:
            raise UsageError(
                f"machine {self.name}",
                found=f"no speed for {dtype}",
                expected=f"one of {', '.join(self.device.flops)}",
                remedy="choose another --amp, or add the type to [device.flops] of a file of your own",
            )
        return self.device.flops[dtype]

    def _check_room(self, ranks: int) -> None:
        if ranks > self.ranks_per_node:
            raise UsageError(
                f"machine {self.name}",
                found=f"{ranks} ranks on a node",
                expected=f"at most {self.ranks_per_node}, one on each device",
                remedy="take more nodes, or fewer ranks",
            )
