"""Regression: a sample's targets from its volume, by CosmoFlow and the squared error."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from voxload.dataset import VolumeDataset
from voxload.errors import UsageError
from voxload.models import CosmoFlow
from voxload.training.data import TrainingData
from voxload.training.plan import TrainingPlan
from voxload.training.statistics import TargetScale
from voxload.training.task import Baseline, Judgement


class Regression:
    """See Task. Marks are the squared error of the scaled targets, then each target's absolute error.

    Parameters
    ----------
    plan
        Names the network.
    data
        Samples with targets.
    """

    def __init__(self, plan: TrainingPlan, data: TrainingData) -> None:
        self.names = data.fields.targets
        self._plan = plan
        self._data = data
        self._targets = _all_targets(data.training)
        self.scale = TargetScale.of(self._targets)

    def network(self) -> nn.Module:
        """Return CosmoFlow; see Task."""
        depth, height, width = self._data.shape
        if not depth == height == width:
            raise UsageError("CosmoFlow", found=f"samples of {(depth, height, width)}", expected="cubes")
        named: dict[str, Any] = {"variant": self._plan.variant} if self._plan.variant else {}
        dropout = self._plan.optimisation.dropout
        return CosmoFlow(depth, self._data.channels, len(self.names), dropout=dropout, **named)

    def loss(self, outputs: Tensor, truth: Tensor) -> Tensor:
        """See Task."""
        return nn.functional.mse_loss(outputs, self.scale.scaled(truth).to(outputs.dtype))

    def marks(self, outputs: Tensor, truth: Tensor) -> Tensor:
        """See Task."""
        found = outputs.double()
        squared = (found - self.scale.scaled(truth)).square().mean(1, keepdim=True)
        return torch.cat([squared, (self.scale.original(found) - truth).abs()], 1)

    def judgement(self, marks: Tensor) -> Judgement:
        """See Task."""
        loss, *mae = marks.mean(0).tolist()
        return Judgement(loss, mae=tuple(mae))

    def baseline(self, marks: Tensor) -> Baseline:  # noqa: ARG002 - the contract's: here the catalogue knows
        """See Task."""
        errors = (_all_targets(self._data.validation) - self._targets.mean(0)).abs()
        return Baseline(mae=tuple(errors.mean(0).tolist()))


def _all_targets(data: VolumeDataset) -> Tensor:
    """Return the targets of all samples, ``(N, T)``; they come from the catalogue, so no volume is opened."""
    return torch.stack([values for index in range(len(data)) if (values := data.read_targets(index)) is not None])
