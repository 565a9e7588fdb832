"""Task: what is learnt from the samples, by which loss, and how held-out ones are judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from voxload.training.result import DiceBaseline
from voxload.training.statistics import TargetScale


@dataclass(frozen=True, slots=True)
class Judgement:
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

    def judgement(self, marks: Tensor) -> Judgement:
        """Return what the marks ``(N, marks)`` of all held-out samples amount to."""
        ...

    def baseline(self, marks: Tensor) -> Baseline:
        """Return what the samples of these marks would give without learning."""
        ...
