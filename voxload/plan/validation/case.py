"""ValidationCase: a setup that is run, as plain values that travel to ranks; and what was measured of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from voxload.plan.forecast.setups import Setup


@dataclass(frozen=True, slots=True)
class ValidationCase:
    """One network on one grid."""

    model: str
    """As `voxload.plan.forecast.training.make_network` takes it."""
    sample: tuple[int, int, int, int]
    spatial: tuple[int, int, int]
    groups: int
    samples: int
    """Of one group's batch."""
    optimizer: str = "adam"
    layers: dict[str, str] = field(default_factory=dict)
    """What layers use the axes of the grid for; those left out, space."""
    rounds: int = 5
    """Steps of which the median counts."""
    looks: bool = True
    """Whether memory is looked at, too."""
    stages: int = 1
    """Of each group's pipeline."""
    microbatches: int = 1
    cuts: tuple[str, ...] = ()
    """Where the network is cut into stages; of several stages, those that `predict` chooses."""
    wrapper: str = "ddp"
    """What averages gradients."""
    recompute: tuple[str, ...] = ()
    """Paths of modules that run again in the backward pass."""

    @property
    def setup(self) -> Setup:
        """Who has what."""
        return Setup(self.spatial, self.groups, self.samples, self.stages, self.microbatches)

    @property
    def ranks(self) -> int:
        """All of them."""
        return self.setup.ranks


@dataclass(frozen=True, slots=True)
class ValidationPlan:
    """Cases of as many ranks, one after the other."""

    cases: tuple[ValidationCase, ...]


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """What a step took."""

    forward: float
    """Seconds, of the rank that took longest; messages included. With stages, of both passes, which alternate."""
    backward: float
    """The same, gradients included; with stages 0."""
    update: float
    total: float
    """Of the whole step."""
    spread: float
    """Half of what lies between the quartiles of steps, as a share of the median."""
    memory: int
    """Bytes that a rank in the middle had at most, as torch's allocator counts; blocks that wait not among them."""
