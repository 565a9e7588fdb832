"""Learner: a network on one rank of the grid, its optimiser and the course of its step size."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from voxload.engine import SplitPlan, shard
from voxload.errors import DataError
from voxload.grid import ProcessGrid
from voxload.parallel import Lion
from voxload.plan import checkpoint_modules
from voxload.training.plan import ADAM, Optimisation

WARM_UP_STEPS = 64
"""Steps until the full rate. CosmoFlow ends in tanh: full steps from the start drive it flat for good."""
_LAST = 0.02
"""Share of the full rate that is left at the end."""


def rate_factor(step: int, steps: int, *, place: float | None = None) -> float:
    """Return the share of the learning rate at `step` of `steps`: linear up, and linear down over the whole run.

    `place` is how far the run is, in steps, where its epochs are not all as long as was planned.

    >>> [round(rate_factor(step, 1000), 3) for step in (0, 63, 500, 999)]
    [0.016, 0.937, 0.5, 0.02]
    """
    return min((step + 1) / WARM_UP_STEPS, 1.0) * max(1 - (step if place is None else place) / steps, _LAST)


class _Course:
    """How far a run is at each step, where epochs become longer than was planned: each is as much of it as any."""

    def __init__(self, steps: int) -> None:
        self._steps, self._planned, self._length = steps, 1, 1
        self._epoch = self._begun = 0

    def begin(self, epoch: int, step: int, *, planned: int, length: int) -> None:
        """Note that an epoch of so many steps begins at a step of the run, where so many were planned."""
        self._epoch, self._begun, self._planned, self._length = epoch, step, planned, length

    def factor(self, step: int) -> float:
        """Return the share of the learning rate."""
        place = self._epoch * self._planned + (step - self._begun) * self._planned / self._length
        return rate_factor(step, self._steps, place=place)


_IN_SPACE: Mapping[str, str] = MappingProxyType({})
_OVER_BATCHES = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


class Learner:
    """What changes in a step; every rank makes one of the same network at the same point. Used by one thread.

    Parameters
    ----------
    network
        The ordinary network, with the same weights on every rank, on the device that computes; it is trained in place.
    grid
        The ranks; torch.distributed is initialised when there are several.
    shape
        Extents (D, H, W) of the samples.
    recipe
        How the weights are found.
    steps
        Steps of the whole run.
    layers
        What layers use the axes of the grid for; those left out, space.
    recompute
        Paths of modules that keep nothing for the backward pass, and run again in it.
    """

    def __init__(
        self,
        network: nn.Module,
        grid: ProcessGrid,
        *,
        shape: Sequence[int],
        recipe: Optimisation,
        steps: int,
        layers: Mapping[str, str] = _IN_SPACE,
        recompute: Collection[str] = (),
    ) -> None:
        self._grid = grid
        self.dtype: torch.dtype = getattr(torch, recipe.dtype)
        self.network = network.to(self.dtype)
        split = SplitPlan.of(layers) if layers else None
        sharded = shard(self.network, grid, shape=shape, plan=split)
        checkpoint_modules(sharded, recompute)
        self.model: nn.Module = _averaging(sharded) if grid.world_size > 1 else sharded
        self._optimiser = _optimiser(self.network, self.model, recipe, grid)
        self._course = course = _Course(steps)
        # A lambda: what else can be called is saved with the schedule.
        self._schedule = torch.optim.lr_scheduler.LambdaLR(self._optimiser, lambda step: course.factor(step))  # noqa: PLW0108 - as said

    @property
    def rate(self) -> float:
        """The step size now."""
        return float(self._schedule.get_last_lr()[0])

    @property
    def is_normalised(self) -> bool:
        """Whether the network normalises over the samples of a batch."""
        return any(isinstance(layer, _OVER_BATCHES) for layer in self.network.modules())

    def outputs(self, volumes: Tensor) -> Tensor:
        """Return what the model gives for this rank's blocks ``(B, C, d, h, w)``."""
        outputs: Tensor = self.model(volumes.to(self.dtype))
        return outputs

    def step(self, loss: Tensor) -> None:
        """Change the weights so that the mean of all ranks' losses falls."""
        self._optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call] # torch's
        self._optimiser.step()
        self._schedule.step()

    def begin_epoch(self, number: int, *, planned: int, length: int, behind: int) -> None:
        """Let the step size fall over an epoch of so many steps, of which some are behind, as over a planned one.

        Needed only where epochs are not as long as was planned.
        """
        self._course.begin(number, self._schedule.last_epoch - behind, planned=planned, length=length)
        self._set_rates()

    def _set_rates(self) -> None:
        """Have the step size that belongs to the step at hand."""
        for group, rate in zip(self._optimiser.param_groups, self._schedule.lr_lambdas, strict=True):
            group["lr"] = group["initial_lr"] * rate(self._schedule.last_epoch)

    def tensors(self, *, with_optimizer: bool) -> list[Tensor]:
        """Return weights and buffers, and with them the moments of the optimiser, to be changed in place."""
        found = [*self.network.parameters(), *self.network.buffers()]
        if with_optimizer:
            states = [self._optimiser.state.get(each, {}) for each in self.network.parameters()]
            found += [each for state in states for _, each in sorted(state.items()) if isinstance(each, Tensor)]
        return [each.detach() for each in found]

    def scale_rate(self, factor: float) -> None:
        """Make the step size, now and later, so many times as large."""
        for group in self._optimiser.param_groups:
            for name in ("lr", "initial_lr"):
                group[name] *= factor
        self._schedule.base_lrs = [rate * factor for rate in self._schedule.base_lrs]

    def state(self) -> dict[str, Any] | None:
        """Return weights, moments of the optimiser and place in the schedule, for any grid, on rank 0; else None.

        All of it is on the host: it goes on wherever it is loaded. All ranks call this.
        """
        optimiser = self._optimiser
        moments = optimiser.gathered_state_dict() if isinstance(optimiser, Lion) else optimiser.state_dict()
        if self._grid.rank != 0:
            return None
        state: dict[str, Any] = on_host(
            {"network": self.network.state_dict(), "optimiser": moments, "schedule": self._schedule.state_dict()}
        )
        return state

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned, on whatever grid; raises DataError when that is of another network."""
        try:
            self.network.load_state_dict(state["network"])
            if isinstance(self._optimiser, Lion):
                self._optimiser.load_gathered_state_dict(state["optimiser"])
            else:
                self._optimiser.load_state_dict(state["optimiser"])
            self._schedule.load_state_dict(state["schedule"])
            self._set_rates()  # the state holds those of the run as it was planned then
        except (KeyError, RuntimeError, ValueError) as error:
            raise DataError(
                "weights and optimiser to go on from",
                found=" ".join(str(error).split()),
                expected="those of this network",
                remedy="use the version of voxload that wrote them, or start anew",
            ) from error


def on_host(value: Any) -> Any:
    """Return a tree of mappings, lists and tensors with its tensors on the host: those that are there as they are."""
    if isinstance(value, Tensor):
        return value.cpu()
    if isinstance(value, Mapping):
        return {key: on_host(each) for key, each in value.items()}
    return [on_host(each) for each in value] if isinstance(value, list) else value


def _optimiser(network: nn.Module, model: nn.Module, recipe: Optimisation, grid: ProcessGrid) -> torch.optim.Optimizer:
    """Return the optimiser of a network that a model runs."""
    if recipe.optimizer == ADAM:
        return torch.optim.Adam(network.parameters(), lr=recipe.learning_rate)
    found = Lion(
        network.parameters(),
        grid,
        lr=recipe.learning_rate,
        combine=recipe.lion_combine,
        bits=recipe.lion_bits or None,
        momentum=recipe.lion_momentum,
    )
    if isinstance(model, DistributedDataParallel):
        found.attach(model)
    return found


def _averaging(model: nn.Module) -> DistributedDataParallel:
    """Return the model with gradients averaged over the world, by the same additions in every step.

    To look for unused parameters, of which there are none, is the way to leave gradients in the buckets that they are
    in. Else they are dealt anew behind the first step, a resumed run's too, and sums of four ranks or more then differ
    in their last bits from those of a run that was not stopped.
    """
    return DistributedDataParallel(model, find_unused_parameters=True)
