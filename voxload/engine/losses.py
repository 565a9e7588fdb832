"""Losses of volumes that are cut over ranks: each rank has its blocks, and all get the loss of the whole.

Sums over blocks are added up over the sample group before anything is divided, so uneven blocks weigh what they hold.
The loss is equal on all ranks of a group; with the exchange's exact derivatives, the plain averaging of DDP or FSDP
over the world then gives the gradient of the mean over the samples, as for a loss of a whole result.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from voxload.engine.exchange.distributed import exchange_of
from voxload.engine.exchange.protocol import Exchange
from voxload.engine.run.collectives import all_sum
from voxload.errors import UsageError
from voxload.grid import ProcessGrid

_BY_ELEMENT: tuple[type[nn.Module], ...] = (
    nn.BCEWithLogitsLoss,
    nn.BCELoss,
    nn.HuberLoss,
    nn.L1Loss,
    nn.MSELoss,
    nn.SmoothL1Loss,
    nn.SoftMarginLoss,
)
"""Losses of torch whose mean is over all numbers of the prediction."""
_BY_VOXEL: tuple[type[nn.Module], ...] = (nn.CrossEntropyLoss, nn.NLLLoss)
"""Losses of torch whose mean is over voxels, by the weights of their classes."""
_VOLUME = (2, 3, 4)


class VoxelLoss(nn.Module):
    """A loss of torch over volumes that are cut over `grid`, equal to the loss of the whole volumes on every rank.

    Parameters
    ----------
    loss
        One of torch's losses by number or by voxel, with ``reduction="mean"`` or ``"sum"``.
    grid
        This rank's view of the grid.
    exchange
        What carries the sums; by default torch.distributed. With one block it is not needed.

    Raises
    ------
    UsageError
        For another loss or reduction.

    Examples
    --------
    >>> criterion = VoxelLoss(nn.CrossEntropyLoss(), ProcessGrid())
    >>> criterion(torch.zeros(1, 2, 2, 2, 2), torch.zeros(1, 2, 2, 2, dtype=torch.int64))
    tensor(0.6931)
    """

    def __init__(self, loss: nn.Module, grid: ProcessGrid, *, exchange: Exchange | None = None) -> None:
        super().__init__()
        reduction = getattr(loss, "reduction", None)
        if type(loss) not in _BY_ELEMENT + _BY_VOXEL or reduction not in {"mean", "sum"}:
            raise UsageError(
                f"loss {type(loss).__name__}",
                found=f"reduction {reduction!r}",
                expected="one of torch's losses by voxel, with reduction 'mean' or 'sum'",
                remedy="build it from voxload.engine.all_sum",
            )
        self._is_mean = reduction == "mean"
        self._exchange = exchange or exchange_over(grid)
        summed: Any = copy.copy(loss)
        summed.reduction = "sum"
        self.loss = summed

    def forward(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return the loss of the whole volumes, a scalar.

        Parameters
        ----------
        prediction
            This rank's block of the prediction, (B, C, d, h, w).
        target
            This rank's block of the target, as `loss` takes it.
        """
        total: Tensor = self.loss(prediction, target)
        if not self._is_mean:
            return _over_group(total, self._exchange)
        weight = self._weight(prediction, target).to(total)
        sums = _over_group(torch.stack((total, weight)), self._exchange)
        return sums[0] / sums[1]

    def _weight(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return what torch divides this block's sum by."""
        if type(self.loss) not in _BY_VOXEL:
            return _number(prediction.numel(), prediction)
        weight: Tensor | None = self.loss.weight
        if target.is_floating_point():  # shares of classes instead of one class: torch divides by voxels
            return _number(prediction.numel() // prediction.shape[1], prediction)
        counted = torch.ne(target, self.loss.ignore_index)
        if weight is None:
            return counted.sum()
        return (weight[torch.where(counted, target, 0)] * counted).sum()


def _number(number: int, beside: Tensor) -> Tensor:
    """Return a number where a tensor is, without a copy that the host would wait for.

    Above 2^24 float32 does not have every number of voxels.
    """
    return torch.full((), float(number), dtype=torch.float64, device=beside.device)


class DiceLoss(nn.Module):
    """One minus the mean Dice coefficient of the classes, of volumes that are cut over `grid`.

    After Milletari et al. (2016), with squares left out as in MLPerf's 3-D U-Net: per sample and class,
    ``(2 * sum(p * t) + smooth) / (sum(p) + sum(t) + smooth)``, where p are softmax probabilities.

    Parameters
    ----------
    grid
        This rank's view of the grid.
    background
        Whether class 0 counts.
    smooth
        Added above and below the fraction: a class that is absent and not predicted has a coefficient of 1.
    exchange
        What carries the sums; by default torch.distributed. With one block it is not needed.
    """

    def __init__(
        self,
        grid: ProcessGrid,
        *,
        background: bool = True,
        smooth: float = 1e-6,
        exchange: Exchange | None = None,
    ) -> None:
        super().__init__()
        self.background = background
        self.smooth = smooth
        self._exchange = exchange or exchange_over(grid)

    def forward(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return the loss of the whole volumes, a scalar.

        Parameters
        ----------
        prediction
            This rank's block of the logits, (B, C, d, h, w).
        target
            This rank's block of the classes, (B, d, h, w), integers below C.
        """
        first = 0 if self.background else 1
        shares = torch.softmax(prediction, 1)[:, first:]
        truth = functional.one_hot(target, prediction.shape[1]).movedim(-1, 1)[:, first:].to(shares.dtype)
        sums = torch.stack(((shares * truth).sum(_VOLUME), shares.sum(_VOLUME), truth.sum(_VOLUME)))
        both, predicted, true = _over_group(sums, self._exchange).unbind()
        return 1 - ((2 * both + self.smooth) / (predicted + true + self.smooth)).mean()


def exchange_over(grid: ProcessGrid) -> Exchange | None:
    """Return the exchange of `grid`, or None where a sample has one block; collective like `exchange_of`."""
    return exchange_of(grid) if grid.group_size > 1 else None


def _over_group(x: Tensor, exchange: Exchange | None) -> Tensor:
    """Return the sum of `x` over the blocks of the group's samples."""
    return x if exchange is None else all_sum(x, exchange)
