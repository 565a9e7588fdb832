"""Tasks: what is learnt from the samples, by which loss, and how held-out ones are judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from voxload.data.dataset import VolumeDataset
from voxload.engine.losses import DiceLoss, VoxelLoss
from voxload.errors import DataError, UsageError
from voxload.grid import ProcessGrid
from voxload.models import CosmoFlow, UNet3D
from voxload.training.data import TrainingData
from voxload.training.normalisation import TargetScale
from voxload.training.plan import TrainingPlan
from voxload.training.result import DiceBaseline


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What the held-out samples say of the weights."""

    loss: float
    """Mean of the task's loss."""
    mae: tuple[float, ...] = ()
    """Mean absolute error, one per target."""
    dice: tuple[float, ...] = ()
    """Mean Dice, one per foreground class."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """What a network that has learnt nothing would reach."""

    mae: tuple[float, ...] = ()
    """Mean absolute error of predicting the mean, one per target."""
    dice: DiceBaseline | None = None
    """Of a segmentation."""


class Task(Protocol):
    """One kind of learning; used by one thread of each rank.

    All ranks call the same methods in the same order: those that take a batch may talk to the sample group. A batch's
    `outputs` are what the network gives for this rank's blocks, and `truth` is what the loader gives beside them.
    """

    names: tuple[str, ...]
    """What is predicted, for people: the targets, or the foreground classes."""

    @property
    def scale(self) -> TargetScale | None:
        """Maps outputs to the targets' own units; None where they have none. Whoever predicts needs it."""
        ...

    def network(self) -> nn.Module:
        """Return the ordinary, unsplit network for the data, its weights drawn from torch's generator.

        Raises UsageError when the samples do not suit it.
        """
        ...

    def loss(self, outputs: Tensor, truth: Tensor) -> Tensor:
        """Return the loss of a batch of whole samples, a scalar: equal on all ranks of the sample group.

        Its gradients are exact when they are averaged over the whole world.
        """
        ...

    def marks(self, outputs: Tensor, truth: Tensor) -> Tensor:
        """Return what is noted of each sample of a batch, ``(B, marks)`` in float64.

        Marks are averaged over the ranks of the sample group; `judgement` and `baseline` take those averages.
        """
        ...

    def judgement(self, marks: Tensor) -> Evaluation:
        """Return what the marks ``(N, marks)`` of all held-out samples amount to."""
        ...

    def baseline(self, marks: Tensor) -> Baseline:
        """Return what the samples of these marks would give without learning."""
        ...


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
        self._targets = _all_targets(data.everyones)
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

    def judgement(self, marks: Tensor) -> Evaluation:
        """See Task."""
        loss, *mae = marks.mean(0).tolist()
        return Evaluation(loss, mae=tuple(mae))

    def baseline(self, marks: Tensor) -> Baseline:  # noqa: ARG002 - the contract's: here the catalogue knows
        """See Task."""
        errors = (_all_targets(self._data.validation) - self._targets.mean(0)).abs()
        return Baseline(mae=tuple(errors.mean(0).tolist()))


def _all_targets(data: VolumeDataset) -> Tensor:
    """Return the targets of all samples, ``(N, T)``; they come from the catalogue, so no volume is opened."""
    return torch.stack([values for index in range(len(data)) if (values := data.read_targets(index)) is not None])


class Segmentation:
    """See Task. The loss is the sum of cross-entropy and Dice loss.

    Marks are a sample's loss, its voxels on this rank and then, by foreground class, those that outputs and labels
    both have, those of the outputs and those of the labels. Averages over ranks stand for sums: only ratios are used.

    Parameters
    ----------
    plan
        Names the network and says how many classes there are.
    data
        Samples with labels, cut into the same blocks as the volumes.
    grid
        The ranks.
    """

    def __init__(self, plan: TrainingPlan, data: TrainingData, grid: ProcessGrid) -> None:
        self._foreground = tuple(range(1, plan.classes))
        self.names = tuple(map(str, self._foreground))
        self.scale = None
        self._plan = plan
        self._data = data
        self._entropy = VoxelLoss(nn.CrossEntropyLoss(), grid)
        self._dice = DiceLoss(grid, background=False)

    def network(self) -> nn.Module:
        """Return the U-Net; see Task."""
        plan, shape = self._plan, self._data.shape
        named: dict[str, Any] = {"variant": plan.variant} if plan.variant else {}
        network = UNet3D(self._data.channels, plan.classes, widths=plan.widths or None, **named)
        multiple = network.input_multiple
        # Of extents that all are the multiple one voxel is left at the bottom, which cannot be normalised.
        if any(extent % multiple for extent in shape) or max(shape) == multiple:
            raise UsageError(
                "UNet3D",
                found=f"samples of {shape}",
                expected=f"multiples of {multiple}, and more than one of them along some axis",
                remedy="convert to other extents, or ask for fewer levels with --widths",
            )
        return network

    def loss(self, outputs: Tensor, truth: Tensor) -> Tensor:
        """See Task."""
        labels = self._labels(truth)
        total: Tensor = self._entropy(outputs, labels) + self._dice(outputs, labels)
        return total

    def marks(self, outputs: Tensor, truth: Tensor) -> Tensor:
        """See Task."""
        labels, found = self._labels(truth), outputs.argmax(1)
        pairs = [(found == one, labels == one) for one in self._foreground]
        counts = [
            [_voxels(of_outputs & of_labels) for of_outputs, of_labels in pairs],
            [_voxels(of_outputs) for of_outputs, _ in pairs],
            [_voxels(of_labels) for _, of_labels in pairs],
        ]
        losses = [self.loss(outputs[one : one + 1], truth[one : one + 1]) for one in range(len(truth))]
        whole = torch.full((len(labels),), labels[0].numel(), device=labels.device)
        columns = [torch.stack(losses), whole, *(column for kind in counts for column in kind)]
        return torch.stack([column.double() for column in columns], 1)

    def judgement(self, marks: Tensor) -> Evaluation:
        """See Task."""
        both, of_outputs, of_labels = marks[:, 2:].chunk(3, 1)
        return Evaluation(float(marks[:, 0].mean()), dice=_mean_dice(both, of_outputs, of_labels))

    def baseline(self, marks: Tensor) -> Baseline:
        """See Task."""
        voxels, of_labels = marks[:, 1:2], marks[:, 2:].chunk(3, 1)[2]
        shares = of_labels.sum(0) / voxels.sum()
        chance = _mean_dice(shares * of_labels, shares * voxels, of_labels)
        everywhere = _mean_dice(of_labels, voxels, of_labels)
        return Baseline(dice=DiceBaseline(self._foreground, chance, everywhere))

    def _labels(self, truth: Tensor) -> Tensor:
        """Return the class of each voxel, ``(B, d, h, w)``.

        Raises
        ------
        UsageError
            When the labels are no integers of one channel.
        DataError
            When one is no class.
        """
        subject = f"labels {self._plan.labels!r}"
        if truth.shape[1] != 1 or truth.is_floating_point():
            found = f"{truth.dtype} of {truth.shape[1]} channels"
            raise UsageError(subject, found=found, expected="one channel of integers")
        labels = truth[:, 0].long()
        low, high = (int(end) for end in labels.aminmax())
        if low < 0 or high >= self._plan.classes:
            raise DataError(
                subject,
                found=f"values from {low} to {high}",
                expected=f"0 to {self._plan.classes - 1}",
                remedy="say --classes as there are, or mend the labels",
            )
        return labels


def _voxels(mask: Tensor) -> Tensor:
    """Return how many voxels of each sample are true."""
    return mask.flatten(1).sum(1)


def _mean_dice(both: Tensor, first: Tensor, second: Tensor) -> tuple[float, ...]:
    """Return the Dice of each class, ``(N, classes)`` each, averaged over samples.

    It is 1 where a class is in neither: nothing was there, and nothing was found.
    """
    sizes = first + second
    dice = torch.where(sizes > 0, 2 * both / sizes, torch.ones_like(sizes))
    return tuple(dice.mean(0).tolist())
